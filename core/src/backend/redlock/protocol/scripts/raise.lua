-- Writes a token back: whoever gets this node's lock later draws a larger number.
-- Invariant: only for the present owner of this node's lock; otherwise the number could be written after
-- somebody else drew the same one here.
-- KEYS: 1 lock, 2 counter. ARGV: 1 owner, 2 token
local value = redis.call('GET', KEYS[1])
local owner, number = string.match(value or '', '^(%x+)|pl1|%d+|(%d+)|')
if owner ~= ARGV[1] then return 0 end
if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2]) end
redis.call('SET', KEYS[1], (string.gsub(value, '|' .. number .. '|', '|' .. ARGV[2] .. '|', 1)), 'KEEPTTL')
return 1
