-- Reads one key that may be another library's lock, if it is small. Changes nothing.
-- KEYS: 1 the key
local time = redis.call('TIME')
local kind = redis.call('TYPE', KEYS[1]).ok
local value, fields = '', {}
if kind == 'string' and redis.call('STRLEN', KEYS[1]) <= 512 then value = redis.call('GET', KEYS[1]) end
if kind == 'hash' and redis.call('HLEN', KEYS[1]) <= 64 then fields = redis.call('HGETALL', KEYS[1]) end
return {string.format('%.0f', time[1] * 1000000 + time[2]), kind, value, fields, redis.call('PTTL', KEYS[1])}
