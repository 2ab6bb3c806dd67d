-- Lets this node vote, with a counter that the others know.
-- Invariant: only if it is as it was when that was decided, and closed for so long by its own clock: a node
-- that changed meanwhile stays closed.
-- KEYS: 1 gate, 2 counter
-- ARGV: 1 the gate as it was, 2 its epoch, 3 the gate as it will be, 4 counter, 5 ms since when it is closed,
--       6 ms for which it has to be
if redis.call('GET', KEYS[1]) ~= ARGV[1] or epoch() ~= ARGV[2] then return 0 end
local time = redis.call('TIME')
if math.floor((time[1] * 1000000 + time[2]) / 1000) < tonumber(ARGV[5]) + tonumber(ARGV[6]) then return 0 end
if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[4]) then redis.call('SET', KEYS[2], ARGV[4]) end
redis.call('SET', KEYS[1], ARGV[3])
return 1
