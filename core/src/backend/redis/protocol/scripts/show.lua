-- Reads one lock. Changes nothing.
-- KEYS: 1 lock, 2 line, 3 signs of life, 4 holders that share, 5 their details, 6 deadlines of waiters.
-- ARGV: 1 how many waiters and holders at most
local time = redis.call('TIME')
local kind = redis.call('TYPE', KEYS[1]).ok
local value = kind == 'string' and redis.call('GET', KEYS[1]) or ''
local line = redis.call('ZRANGE', KEYS[2], 0, tonumber(ARGV[1]) - 1, 'WITHSCORES')
local signs = {}
for at = 1, #line, 2 do
  signs[#signs + 1] = string.match(redis.call('ZSCORE', KEYS[3], line[at]) or '0', '^%d+')
end
local now_us = time[1] * 1000000 + time[2]
local live = '(' .. string.format('%.0f', math.floor(now_us / 1000))
local holders = redis.call('ZRANGEBYSCORE', KEYS[4], live, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local details = {}
for at = 1, #holders, 2 do
  details[#details + 1] = redis.call('HGET', KEYS[5], string.match(holders[at], '^%x*')) or ''
end
local deadlines = {}
if line[1] then
  deadlines = redis.call('ZRANGEBYSCORE', KEYS[6], line[2], line[#line], 'LIMIT', 0, 4 * ARGV[1])
end
-- What a client that keeps the lease has written beside the line, as kept.lua does. To keep a lease is a renewal.
local kept
if value ~= '' and string.sub(value, 33, 45) ~= '|pl1|00000000' then
  kept = redis.pcall('GET', string.sub(KEYS[2], 1, -5) .. 'kept')
end
return {
  string.format('%.0f', now_us), kind, value, redis.call('PTTL', KEYS[1]), line, signs, holders, details,
  deadlines, type(kept) == 'string' and kept or '',
}
