-- Acquire, confirm, sign of life and back-stop in one step, for a lock that can be shared.
-- Invariant: answers 'held' only if the holders name this owner, for at least the first lease from now;
-- a confirmation never shortens a lease; a name in use as another kind is left as it is.
-- ARGV: as for poll, up to 13; the waiter record carries the mode
local OWNER, WAITER, FIRST = ARGV[5], ARGV[6], tonumber(ARGV[7])
local MODE = string.match(WAITER, '|%d|([^|]+)|')

end_leases()
local head = live_head()
local present = shared_mode() or wanted_mode(head)
if present and kind_of(present) ~= kind_of(MODE) then return {'other', present} end
local mine, my_fence, _, my_end = lease_of(OWNER)
if mine then
  if my_end < now_ms() + FIRST then extend(mine, now_ms() + FIRST) end
  return {'held', my_fence}
end
local value = redis.call('GET', LOCK)
if value then
  if not holder_of(value) and redis.call('PTTL', LOCK) == -1 then return {'foreign'} end
  return {'other', 'm'}
end
no_longer_than_longest(FIRST)

if (head == nil or head == WAITER or ARGV[9] == '1') and admits(MODE) then
  local withheld = withheld_ms()
  if withheld > 0 then return {'withheld', withheld} end
  if head ~= nil then leave_line(WAITER) end
  local _, _, fence = share(WAITER)
  redis.call('ZADD', INDEX, now_ms(), NAME)
  -- Those behind it may share the lock with it.
  grant_together()
  return {'held', fence}
end
grant_together()
-- Among those who were granted it may be this very contender.
mine, my_fence = lease_of(OWNER)
if mine then return {'held', my_fence} end

local again = unswept and 1 or 0
local position = place_in_line(WAITER)
-- The end that may make room first, and for error messages the one who has held it longest.
local holders = redis.call('ZRANGE', HOLDERS, 0, 127, 'WITHSCORES')
local oldest, ends
for at = 1, #holders, 2 do
  local number = tonumber(string.match(holders[at], '^%x+|(%d+)|'))
  if number and (not oldest or number < oldest) then
    oldest, ends, value = number, holders[at + 1], string.match(holders[at], '^%x+')
  end
end
local details = value and redis.call('HGET', DETAILS, value)
return {
  'wait', redis.call('GET', COUNTER) or '0', position, holders[2] and holders[2] - now_ms() or -2,
  details and string.match(details, '^[^|]+|(.*)$') or '', text(now_ms()), ends and ends - now_ms() or -2,
  again,
}
