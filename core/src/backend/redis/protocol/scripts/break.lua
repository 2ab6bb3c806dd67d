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
local client = broken(shared, owner, fence, value, ARGV[6], ARGV[7], ARGV[8], ARGV[9])
local next_client = nil
if shared then next_client = grant_together() else next_client = grant_next() end
unlist_if_free(next_client)
return {'broken', client, next_client or ''}
