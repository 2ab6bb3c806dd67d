-- Reads a record of idempotent work without its result. Changes nothing.
-- KEYS: 1 record (hash). ARGV: fields
local time = redis.call('TIME')
local now_ms = string.format('%.0f', math.floor((time[1] * 1000000 + time[2]) / 1000))
local fields = {}
for at, field in ipairs(ARGV) do
  fields[2 * at - 1] = field
  fields[2 * at] = redis.call('HGET', KEYS[1], field) or ''
end
return {0, now_ms, redis.call('PTTL', KEYS[1]), fields}
