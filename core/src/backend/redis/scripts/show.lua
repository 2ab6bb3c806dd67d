-- Reads one lock. Changes nothing.
-- KEYS: 1 lock, 2 line, 3 signs of life. ARGV: 1 how many waiters at most
local time = redis.call('TIME')
local kind = redis.call('TYPE', KEYS[1]).ok
local value = kind == 'string' and redis.call('GET', KEYS[1]) or ''
local line = redis.call('ZRANGE', KEYS[2], 0, tonumber(ARGV[1]) - 1, 'WITHSCORES')
local signs = {}
for at = 1, #line, 2 do signs[#signs + 1] = redis.call('ZSCORE', KEYS[3], line[at]) or '0' end
return {string.format('%.0f', time[1] * 1000000 + time[2]), kind, value, redis.call('PTTL', KEYS[1]), line, signs}
