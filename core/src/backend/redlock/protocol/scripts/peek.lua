-- Reads one lock. Changes nothing.
-- KEYS: 1 lock
local value = redis.call('GET', KEYS[1])
return {value or '', value and redis.call('PTTL', KEYS[1]) or -2}
