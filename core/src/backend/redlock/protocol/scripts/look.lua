-- Says whether this node votes. A client that takes locks also closes it if it restarted, was promoted, was
-- emptied or its clock moved, and records its own terms; one that only reads changes nothing.
-- Invariant: the gate is open only in the epoch in which it was opened. It keeps the number of nodes, a strict
-- guarantee and the longest lease over changes. The gate of a store of another size is left alone.
-- KEYS: 1 gate, 2 counter. ARGV: 1 number of nodes, 2 1 to write, 3 1 if strict, 4 longest lease in ms, 5 1 if
--       the store is known to have been used, 6 the client's wall clock in ms, 7 the gate to close in any case
-- gate = run id:replication id|open, floored or the ms since when it is closed|number of nodes|1 if it was new|
--        1 if strict|longest lease in ms|wall clock of the client that closed it in ms
local time = redis.call('TIME')
local now_ms = string.format('%.0f', math.floor((time[1] * 1000000 + time[2]) / 1000))
local now_is, counter, gate = epoch(), redis.call('GET', KEYS[2]), redis.call('GET', KEYS[1])
local of, state, nodes, fresh, strict, longest, wall =
  string.match(gate or '', '^(%x+:%x+)|(%w+)|(%d+)|(%d)|(%d)|(%d+)|(%d+)$')
local changed = of ~= now_is
if changed then fresh = (gate or counter) and '0' or '1' end
if ARGV[2] == '1' and (not nodes or nodes == ARGV[1]) then
  if changed or gate == ARGV[7] then
    if not changed then fresh = '0' end
    state, wall, changed = now_ms, ARGV[6], false
  end
  if ARGV[5] == '1' and state ~= 'open' and state ~= 'floored' then fresh = '0' end
  if ARGV[3] == '1' then strict = '1' end
  longest = string.format('%.0f', math.max(tonumber(longest or 0), tonumber(ARGV[4])))
  local now = table.concat({now_is, state, nodes or ARGV[1], fresh, strict or '0', longest, wall}, '|')
  if now ~= gate then redis.call('SET', KEYS[1], now) end
  gate, nodes = now, ARGV[1]
end
return {now_is, gate or '', changed and 'changed' or state, nodes or '', fresh, strict or '0', longest or '0',
  wall or '0', counter or '0', now_ms}
