-- The key of what is known of a mutex whose client keeps its lease after a release:
-- owner|fence|ms until which its client wants to know of others|1 or 2 if it listens|client
local function kept_key() return string.sub(LINE, 1, -5) .. 'kept' end

-- Tells the client of the present holder, if it keeps the lease, that another one wants the lock. To keep it is a
-- renewal, so most are known to keep nothing by their value.
local function tell_keeper(value, owner, fence)
  if string.find(value, '|00000000|', 37, true) == 37 then return end
  local kept = redis.pcall('GET', kept_key())
  if type(kept) ~= 'string' then return end
  local by, number, ends, listens, client = string.match(kept, '^(%x+)|(%d+)|(%d+)|(%d)|(.*)$')
  if by == owner and number == fence and tonumber(ends) > now_ms() then
    tell(listens, client, 'wanted|' .. owner .. '|' .. fence)
  end
end
