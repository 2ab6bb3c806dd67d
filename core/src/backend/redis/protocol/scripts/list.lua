-- Reads one page of the index of names. Changes nothing.
-- KEYS: 1 index of names. ARGV: 1 first place, 2 last place
return redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[2])
