-- Frees the lock if it is still exactly (owner, fence), and grants it to the next.
-- Invariant: deletes before it grants, so that it works on a server whose memory is full and no
-- prefix leaves two owners.
-- ARGV: 5 owner, 6 fence
if not freed then
  local value = redis.call('GET', LOCK)
  if not value then return 0 end
  local owner, fence = holder_of(value)
  if owner ~= ARGV[5] or fence ~= ARGV[6] then return 0 end
  redis.call('DEL', LOCK)
end
unlist_if_free(grant_next())
return 1
