-- Changes the way in which a lease of exactly (owner, fence) is held, between reading and writing.
-- Invariant: to writing only if nobody else holds it, under a new fence; never shortens the lease; the
-- old way is let go after the new one stands, and both are of one owner.
-- ARGV: 5 owner, 6 fence, 7 r or w, 8 first lease ms
end_leases()
local OWNER, TO = ARGV[5], ARGV[7]
local old, fence, mode, ends, value = lease_of(OWNER)
if not old or fence ~= ARGV[6] or kind_of(mode) ~= 'rw' then return {'nothing'} end
if TO == 'w' then
  -- While grants are withheld, readers may be forgotten that still read.
  if redis.call('ZCARD', HOLDERS) > 1 or withheld_ms() > 0 then return {'refused'} end
  fence = next_number()
end
local new = OWNER .. '|' .. fence .. '|' .. TO
ends = math.max(ends, now_ms() + tonumber(ARGV[8]))
local before, after = string.match(value, '^[^|]+(|%x+|pl1|%d+|)%d+(|.*)$')
redis.call('HSET', DETAILS, OWNER, TO .. before .. fence .. after)
redis.call('ZADD', HOLDERS, ends, new)
if new ~= old then redis.call('ZREM', HOLDERS, old) end
keep_until(ends)
grant_together()
return {'done', fence}
