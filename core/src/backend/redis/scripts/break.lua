-- Ends somebody's lease if it still has the expected fence, and grants to the next.
-- Invariant: a lock that changed hands since it was looked at is left alone; every break is on record.
-- KEYS: 9 audit list. ARGV: 5 expected fence, 6 name for people, 7 who, 8 why, 9 length of the audit
local value, owner, fence, shared = lock_value(), nil, nil, nil
if value then owner, fence = holder_of(value) end
if not owner then
  local newest
  end_leases()
  for _, member in ipairs(redis.call('ZRANGE', HOLDERS, 0, -1)) do
    local holder, number = string.match(member, '^(%x+)|(%d+)|')
    if number and (not newest or tonumber(number) > tonumber(newest)) then newest = number end
    if number == ARGV[5] then shared, owner, fence = member, holder, number end
  end
  if not shared then
    if newest then return {'changed', newest} end
    if value then return {string.find(value, '^%x+|pl%d+|') and 'unreadable' or 'foreign'} end
    return {redis.call('EXISTS', HOLDERS) == 1 and 'unreadable' or 'free'}
  end
  value = redis.call('HGET', DETAILS, owner) or ''
elseif fence ~= ARGV[5] then
  return {'changed', fence}
end
local client = string.match(value, '%x+|pl1|%d+|%d+|%d+|%d+|%d+|([^|]*)|') or ''
-- Makes room, and fails here if something else stands there.
redis.call('LTRIM', KEYS[9], 0, tonumber(ARGV[9]) - 2)
if shared then give_up(shared) else redis.call('DEL', LOCK) end
redis.call('LPUSH', KEYS[9], cjson.encode({
  v = 1, at_ms = now_ms(), name = ARGV[6], fencing_token = fence, holder = client, by = ARGV[7], reason = ARGV[8],
}))
-- Where its client listens, if it does, does not stand in the lock.
tell('1', client, 'revoked|' .. owner .. '|' .. fence)
if string.find(COUNTER, '{', 1, true) then tell('2', client, 'revoked|' .. owner .. '|' .. fence) end
local next_client = nil
if shared then next_client = grant_together() else next_client = grant_next() end
unlist_if_free(next_client)
return {'broken', client, next_client or ''}
