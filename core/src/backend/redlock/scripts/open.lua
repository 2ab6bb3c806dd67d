-- Lets this node vote, from a counter that the others know.
-- Invariant: only if it is as it was when that was decided: a node that changed meanwhile stays closed.
-- KEYS: 1 gate, 2 counter. ARGV: 1 the gate as it was, 2 its epoch, 3 the gate as it will be, 4 counter
if redis.call('GET', KEYS[1]) ~= ARGV[1] or epoch() ~= ARGV[2] then return 0 end
if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[4]) then redis.call('SET', KEYS[2], ARGV[4]) end
redis.call('SET', KEYS[1], ARGV[3])
return 1
