-- Ends somebody's lease if it still has the expected fence, and grants the next waiter.
-- Invariant: a lock that changed hands since it was looked at is left alone; every break is on record.
-- KEYS: 7 audit list. ARGV: 5 expected fence, 6 name for people, 7 who, 8 why, 9 length of the audit
local value = redis.call('GET', LOCK)
if not value then return {'free'} end
local owner, fence = holder_of(value)
if not owner then return {'foreign'} end
if fence ~= ARGV[5] then return {'changed', fence} end
local client = string.match(value, '^%x+|pl1|%d+|%d+|%d+|%d+|%d+|([^|]*)|')
redis.call('DEL', LOCK)
redis.pcall('PUBLISH', INBOX .. client, 'revoked|' .. owner .. '|' .. fence)
local next_client = grant_next()
unlist_if_free(next_client)
redis.call('LPUSH', KEYS[7], cjson.encode({
  at_ms = now_ms(), name = ARGV[6], fencing_token = fence, holder = client, by = ARGV[7], reason = ARGV[8],
}))
redis.call('LTRIM', KEYS[7], 0, tonumber(ARGV[9]) - 1)
return {'broken', client, next_client or ''}
