-- Writes over a record of idempotent work, if it has not changed since it was read; otherwise reads it.
-- Invariant: version grows with every write of a record, and with the clock from one record of a key to the next.
-- KEYS: 1 record (hash)
-- ARGV: 1 expected version, empty for no record, ? to read only; 2 put or del; 3 lease ms, or empty; 4 how long it is
--       kept in ms, empty for ever; 5 fence, empty for a new claim; 6... fields and values of the record
local version = redis.call('HGET', KEYS[1], 'version')
if not version and redis.call('EXISTS', KEYS[1]) == 1 then return {2} end
if (version or '') ~= ARGV[1] then
  if ARGV[1] == '' then
    -- A claim on work that is over: the answer is all that its caller needs.
    local state = redis.call('HGET', KEYS[1], 'state')
    if state == 'done' or state == 'failed' or state == 'too-large' then
      return {3, version, redis.call('PTTL', KEYS[1]), state, redis.call('HGET', KEYS[1], 'fingerprint'),
        redis.call('HGET', KEYS[1], 'result')}
    end
  end
  local time = redis.call('TIME')
  return {0, time[1], time[2], redis.call('PTTL', KEYS[1]), redis.call('HGETALL', KEYS[1])}
end
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local number = string.format('%.0f', math.max(tonumber(version or 0) + 1, now_us))
if ARGV[2] == 'del' then
  redis.call('DEL', KEYS[1])
  return {1, number}
end
local ends_ms = '0'
if ARGV[3] ~= '' then ends_ms = string.format('%.0f', math.ceil(now_us / 1000) + ARGV[3]) end
local fence = ARGV[5]
if fence == '' then fence = number end
-- One that was kept for a time is to have no expiry left; every field is written below.
if ARGV[4] == '' then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], 'version', number, 'fence', fence, 'ends_ms', ends_ms,
  'written_ms', string.format('%.0f', math.floor(now_us / 1000)), unpack(ARGV, 6))
if ARGV[4] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
return {1, number}
