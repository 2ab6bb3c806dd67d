-- Reads a record of idempotent work without its result. Changes nothing.
-- KEYS: 1 record (hash). ARGV: fields
local time = redis.call('TIME')
local now_ms = string.format('%.0f', math.floor((time[1] * 1000000 + time[2]) / 1000))
local fields = {}
for at, value in ipairs(redis.call('HMGET', KEYS[1], unpack(ARGV))) do
  fields[#fields + 1] = ARGV[at]
  fields[#fields + 1] = value or ''
end
return {0, now_ms, redis.call('PTTL', KEYS[1]), fields}
