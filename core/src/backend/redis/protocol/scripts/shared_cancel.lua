-- Leaves the line, and ends the lease if this contender has one after all.
-- Invariant: touches nothing of anybody else, but grants to those whom that lets in: a writer that
-- leaves the line may have been all that kept the readers behind it out.
-- ARGV: 5 owner, 6 waiter record
end_leases()
local left = give_up_place(ARGV[6])
local member = lease_of(ARGV[5])
if member then give_up(member) end
unlist_if_free((left or member) and grant_together() or nil)
return 1
