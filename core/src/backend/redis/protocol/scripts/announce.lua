-- Records who a client is, with an expiry, and sweeps a few names that nothing is left of.
-- Invariant: removes only index entries without lock, holders and line, and clients that have been silent.
-- KEYS: 1 client record (hash), 2 clients (zset id -> ms), 3 index of names (zset)
-- ARGV: 1 client id, 2 time to live ms, 3 lock key prefix, 4 lock key suffix, 5 line key prefix,
--       6 line key suffix, 7 suffix of the key of holders that share, 8... fields and values of the record
local time = redis.call('TIME')
local now_ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local fields = {}
for at = 8, #ARGV do fields[#fields + 1] = ARGV[at] end
redis.call('HSET', KEYS[1], 'seen_ms', string.format('%.0f', now_ms), unpack(fields))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[2], now_ms + tonumber(ARGV[2]), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now_ms)
-- The index is ordered by when an entry was last found in use, so a few of the oldest suffice.
local oldest = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now_ms - 30000, 'LIMIT', 0, 128)
for _, name in ipairs(oldest) do
  local line, holders = ARGV[5] .. name .. ARGV[6], ARGV[5] .. name .. ARGV[7]
  if redis.call('EXISTS', ARGV[3] .. name .. ARGV[4], line, holders) == 0 then
    redis.call('ZREM', KEYS[3], name)
  else
    redis.call('ZADD', KEYS[3], now_ms, name)
  end
end
return 1
