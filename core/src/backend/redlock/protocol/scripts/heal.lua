-- Gives this node a lease that a majority has: it was down, or it has lost it.
-- Invariant: never takes a lock from anybody, and raises the counter first: whoever gets this lock later
-- draws a larger number.
-- KEYS: 1 lock, 2 counter, 3 index of names
-- ARGV: 1 owner|pl1|renewals|token|, 2 |first lease|lease|client|label, 3 lease ms, 4 token, 5 name
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local time = redis.call('TIME')
local now_ms = string.format('%.0f', math.floor((time[1] * 1000000 + time[2]) / 1000))
if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[4]) then redis.call('SET', KEYS[2], ARGV[4]) end
redis.call('SET', KEYS[1], ARGV[1] .. now_ms .. ARGV[2], 'NX', 'PX', ARGV[3])
redis.call('ZADD', KEYS[3], now_ms, ARGV[5])
return 1
