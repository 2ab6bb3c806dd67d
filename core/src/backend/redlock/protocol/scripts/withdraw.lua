-- Takes back one yes: a contender that got no majority must not be in anybody's way. It waits here too, so
-- that all nodes know of the same crowd.
-- Invariant: only exactly this yes. One that was said to the same owner later is left alone.
-- KEYS: 1 lock, 2 crowd, 3 signs of life, 4 index of names
-- ARGV: 1 owner, 2 number, 3 waiter record, empty if it does not wait, 4 how long it counts as alive in ms,
--       5 since when it waits in us, 6 name in the index
local value = redis.call('GET', KEYS[1])
local owner, number = string.match(value or '', '^(%x+)|pl1|%d+|(%d+)|')
local taken_back = owner == ARGV[1] and number == ARGV[2]
if taken_back then redis.call('DEL', KEYS[1]) end
if ARGV[3] ~= '' then
  local time = redis.call('TIME')
  local now_us = time[1] * 1000000 + time[2]
  stand_in_crowd(ARGV[3], ARGV[5], ARGV[4], now_us)
  redis.call('ZADD', KEYS[4], string.format('%.0f', math.floor(now_us / 1000)), ARGV[6])
elseif taken_back and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('ZREM', KEYS[4], ARGV[6])
end
return taken_back and 1 or 0
