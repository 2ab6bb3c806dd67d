-- Leaves the line, and releases the lock if this contender owns it after all.
-- Invariant: touches nothing of anybody else, but grants to the next if that left somebody in front.
-- ARGV: 5 owner, 6 waiter record
local left = give_up_place(ARGV[6])
local value = lock_value()
if value and holder_of(value) == ARGV[5] then
  redis.call('DEL', LOCK)
  value, left = false, true
end
if value then
  if left then live_head() end
else
  local mode, sealed = shared_mode()
  unlist_if_free(left and not (mode or sealed) and grant_next() or nil)
end
return 1
