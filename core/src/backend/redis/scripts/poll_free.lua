-- The usual case of poll, before anything else is set up: the lock is free, nobody shares its name, and
-- nobody stands in line. Does exactly what poll would do then, in a third of the time; otherwise changes
-- nothing, and the script goes on. Every argument costs, so those of the other cases come packed.
-- KEYS: those of poll. ARGV: 1 owner, 2 |first lease|lease|client|label, the end of a lock value,
--       3 first lease ms, 4 not empty under guarantee=strict, 5 name in the index, 6 the rest, for unpack
if ARGV[4] == '' and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[7]) == 0 then
  local last, time = redis.call('GET', KEYS[4]), redis.call('TIME')
  local fence = time[1] .. string.sub(1000000 + time[2], 2)
  local acquired = string.sub(fence, 1, -4)
  if last and tonumber(last) >= tonumber(fence) then fence = string.format('%.0f', last + 1) end
  redis.call('SET', KEYS[4], fence)
  redis.call('SET', KEYS[1], ARGV[1] .. '|pl1|00000000|' .. fence .. '|' .. acquired .. ARGV[2], 'PX', ARGV[3])
  redis.call('ZADD', KEYS[5], acquired, ARGV[5])
  return fence
end
