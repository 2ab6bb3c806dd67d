-- Ends a lease that is still exactly (owner, fence), and grants to those who can have the lock then.
-- Invariant: ends it before it grants, so that it works on a server whose memory is full and no prefix
-- leaves leases beside each other that exclude each other.
-- ARGV: 5 owner, 6 fence
end_leases()
local member, fence = lease_of(ARGV[5])
if not member or fence ~= ARGV[6] then return 0 end
give_up(member)
unlist_if_free(grant_together())
return 1
