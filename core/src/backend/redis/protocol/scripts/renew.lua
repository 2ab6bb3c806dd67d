-- Extends leases that are still exactly (owner, fence).
-- Invariant: never creates a lock, never shortens a lease (a request may arrive after a later one),
-- touches no key but those named, and where a full memory refuses the usual SET extends by a bare PEXPIRE.
-- One lock whose key holds foreign data by now does not keep the others from being extended.
-- KEYS: the locks, then the index of names. ARGV: for each lock its 'owner|pl1|', its fence, the lease
-- in ms, the number of this renewal in eight digits, its name in the index if it is to be listed, and the
-- length of the leases that its holder asks for.
local answers, listed, seen = {}, {}, nil
for at = 1, #KEYS - 1 do
  local lock, base = KEYS[at], (at - 1) * 6
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' then
    if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
    value = false
  end
  local answer = 0
  -- owner (32), |pl1| (5), renewals (8): the fence begins at 46.
  local fence, length = string.match(value or '', '^|(%d+)|%d+|%d+|(%d+)|', 46)
  if fence == ARGV[base + 2] and string.sub(value, 1, #ARGV[base + 1]) == ARGV[base + 1] then
    local written
    -- Nothing that is newer than the request was applied, and the leases are as long as before: what it asks
    -- for ends later than what there is.
    if length == ARGV[base + 6] and string.sub(value, 38, 45) < ARGV[base + 4] then
      written = redis.pcall('SET', lock, ARGV[base + 1] .. ARGV[base + 4] .. string.sub(value, 46), 'PX', ARGV[base + 3])
    end
    if not written or written.err then
      local extended = redis.pcall('PEXPIRE', lock, ARGV[base + 3], 'GT')
      -- Before Redis 7.0 there is no GT.
      if type(extended) == 'table' and redis.call('PTTL', lock) < tonumber(ARGV[base + 3]) then
        redis.call('PEXPIRE', lock, ARGV[base + 3])
      end
    end
    answer = 1
    if length ~= ARGV[base + 6] then
      -- Never less than what is left: others cut the lease to the length on record. After the write above
      -- a full memory does not stop this one; where it does, a longer lease does not count.
      local left, recorded = redis.call('PTTL', lock), tonumber(length)
      length = math.max(left, tonumber(ARGV[base + 6]))
      local granted, first, rest = string.match(value, '^%x+|pl1|%d+|%d+|(%d+)|(%d+)|%d+(|.*)$')
      if tonumber(ARGV[base + 4]) == 0 then first = string.format('%.0f', length) end
      local written = redis.pcall('SET', lock, ARGV[base + 1] .. ARGV[base + 4] .. '|' .. fence .. '|' .. granted
        .. '|' .. first .. '|' .. string.format('%.0f', length) .. rest, 'PX', left)
      if type(written) == 'table' and written.err and length > recorded then answer = -1 end
    end
    if ARGV[base + 5] ~= '' then
      if not seen then
        local time = redis.call('TIME')
        seen = time[1] .. string.sub('00000' .. time[2], -6, -4)
      end
      listed[#listed + 1] = seen
      listed[#listed + 1] = ARGV[base + 5]
    end
  end
  answers[at] = answer
end
if seen then redis.pcall('ZADD', KEYS[#KEYS], unpack(listed)) end
return answers
