-- Takes back one yes: a contender that got no majority must not be in anybody's way.
-- Invariant: only exactly this yes. One that was said to the same owner later is left alone.
-- KEYS: 1 lock. ARGV: 1 owner, 2 number
local value = redis.call('GET', KEYS[1])
local owner, number = string.match(value or '', '^(%x+)|pl1|%d+|(%d+)|')
if owner ~= ARGV[1] or number ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
return 1
