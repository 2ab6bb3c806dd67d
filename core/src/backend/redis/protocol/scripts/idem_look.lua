-- Reads a record of idempotent work without its result. Changes nothing.
-- KEYS: 1 record (hash). ARGV: fields
local time = redis.call('TIME')
local fields = {}
for at, field in ipairs(ARGV) do
  fields[2 * at - 1] = field
  fields[2 * at] = redis.call('HGET', KEYS[1], field) or ''
end
return {0, time[1], time[2], redis.call('PTTL', KEYS[1]), fields}
