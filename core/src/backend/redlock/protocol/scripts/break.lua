-- Ends somebody's lease on this node, and tells the next. Every break is on record on every node.
-- KEYS: 6 audit list. ARGV: 5 token, 6 name for people, 7 who, 8 why, 9 length of the audit, 10 holder
-- Answers whether it did, and the client that was told.
local value = redis.call('GET', KEYS[1])
if not value or string.match(value, '^(%x+)|pl1|') ~= ARGV[1] then return {0, ''} end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[2] .. ARGV[10], 'revoked|' .. ARGV[1] .. '|' .. ARGV[5])
local next_client
if redis.call('EXISTS', KEYS[2]) == 1 then next_client = tell_next() else redis.call('ZREM', KEYS[4], ARGV[3]) end
local time = redis.call('TIME')
redis.call('LPUSH', KEYS[6], cjson.encode({
  at_ms = math.floor((time[1] * 1000000 + time[2]) / 1000), name = ARGV[6], fencing_token = ARGV[5],
  holder = ARGV[10], by = ARGV[7], reason = ARGV[8],
}))
redis.call('LTRIM', KEYS[6], 0, tonumber(ARGV[9]) - 1)
return {1, next_client or ''}
