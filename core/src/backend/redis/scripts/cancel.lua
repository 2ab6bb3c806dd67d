-- Leaves the line, and releases the lock if this contender owns it after all.
-- Invariant: touches nothing of anybody else.
-- ARGV: 5 owner, 6 waiter record
redis.call('ZREM', LINE, ARGV[6])
redis.call('ZREM', LIFE, ARGV[6])
local value = redis.call('GET', LOCK)
if value and holder_of(value) == ARGV[5] then
  redis.call('DEL', LOCK)
  value = false
  unlist_if_free(grant_next())
elseif not value then
  unlist_if_free(nil)
end
return 1
