-- Ends every lease of a lock and grants it to the contender, before all waiters.
-- Invariant: what is held as another kind, by another library or by another version is left alone, and so is
-- everything while grants are withheld; every lease that is ended is on record. A prefix of the writes leaves the
-- lock free, which the next poll repairs.
-- KEYS: 9 audit list. ARGV: 5 owner, 6 waiter record, 7 first lease ms, 8 name for people, 9 who, 10 why,
--       11 length of the audit
local OWNER, WAITER, FIRST = ARGV[5], ARGV[6], tonumber(ARGV[7])
local MODE = string.match(WAITER, '|%d|([^|]+)|')

end_leases()
local head = live_head()
local value, owner, fence = lock_value(), nil, nil
if value then owner, fence = holder_of(value) end
local present, sealed = owner and 'm', nil
if not present then present, sealed = shared_mode() end
present = present or wanted_mode(head)
if present and kind_of(present) ~= kind_of(MODE) then return {'other', present} end
if value and not owner then
  return {string.find(value, '^%x+|pl%d+|%d+') and 'unreadable' or 'foreign'}
end
if sealed then return {'unreadable'} end

if owner == OWNER then
  if redis.call('PTTL', LOCK) < FIRST then redis.call('PEXPIRE', LOCK, FIRST) end
  return {'held', fence}
end
local mine, my_fence, _, my_end = lease_of(OWNER)
if mine then
  if my_end < now_ms() + FIRST then extend(mine, now_ms() + FIRST) end
  return {'held', my_fence}
end

local victims = {}
for _, member in ipairs(redis.call('ZRANGE', HOLDERS, 0, -1)) do
  local holder, number = string.match(member, '^(%x+)|(%d+)|')
  -- One of another version beside readable ones.
  if not holder or not mode_of_holder(member) then return {'unreadable'} end
  table.insert(victims, {member, holder, number})
end
table.sort(victims, function(one, other) return tonumber(one[3]) < tonumber(other[3]) end)
local withheld = withheld_ms()
if withheld > 0 then return {'withheld', withheld} end

if owner then broken(nil, owner, fence, value, ARGV[8], ARGV[9], ARGV[10], ARGV[11]) end
for _, victim in ipairs(victims) do
  local details = redis.call('HGET', DETAILS, victim[2]) or ''
  broken(victim[1], victim[2], victim[3], details, ARGV[8], ARGV[9], ARGV[10], ARGV[11])
end
if head ~= nil then leave_line(WAITER) end
local granted, _
if MODE == 'm' then granted = hold(WAITER) else _, _, granted = share(WAITER) end
redis.call('ZADD', INDEX, now_ms(), NAME)
return {'held', granted}
