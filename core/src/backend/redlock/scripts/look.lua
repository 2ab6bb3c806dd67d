-- Says whether this node votes, and closes it if it has restarted, was promoted or was emptied since.
-- Invariant: the gate says open only in the epoch in which it was opened. A node that is found changed
-- stays closed until every lease that it may have forgotten has ended.
-- KEYS: 1 gate, 2 counter. ARGV: 1 number of nodes, 2 ms to stay closed
-- gate = run id:replication id|open, or the ms until which it is closed|number of nodes|1 if it was new
local time = redis.call('TIME')
local now_ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local now_is, counter = epoch(), redis.call('GET', KEYS[2])
local gate = redis.call('GET', KEYS[1])
local of, state, nodes, fresh = string.match(gate or '', '^(%x+:%x+)|(%w+)|(%d+)|(%d)$')
if of ~= now_is then
  state, nodes, fresh = string.format('%.0f', now_ms + tonumber(ARGV[2])), ARGV[1], '0'
  if not gate and not counter then fresh = '1' end
  gate = now_is .. '|' .. state .. '|' .. nodes .. '|' .. fresh
  redis.call('SET', KEYS[1], gate)
end
local left = state == 'open' and -1 or math.max(0, tonumber(state) - now_ms)
return {now_is, gate, left, nodes, fresh, counter or '0', string.format('%.0f', now_ms)}
