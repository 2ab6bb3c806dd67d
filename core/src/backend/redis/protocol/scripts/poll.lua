-- Acquire, confirm, sign of life and back-stop in one step.
-- Invariant: answers 'held' only if the lock key names this owner, for at least the first lease
-- from now; a confirmation never shortens a lease that a renewal made longer.
-- ARGV: 5 owner, 6 waiter record, 7 first lease ms, 8 1 to stand in line, 9 1 to barge,
--       10 near heartbeat ms, 11 far heartbeat ms, 12 how many positions count as near,
--       13 ms after which it gives up, or -, 14 not empty if a grant is to be listed now
local OWNER, WAITER, FIRST = ARGV[5], ARGV[6], tonumber(ARGV[7])

local OTHERS = others_key()

-- A release leaves the lock to other libraries for a moment while ours wait: how many ms are left of that.
local function left_to_others()
  local ends = OTHERS and string.match(redis.call('GET', OTHERS) or '', '|(%d+)$')
  local rest = ends and tonumber(ends) - now_ms()
  return rest and rest > 0 and rest <= 200 and rest or nil
end

local value = lock_value()
local head = live_head()
local owner, fence, left, waited
if value then owner, fence = holder_of(value) end
local sealed
if not owner then
  local present
  present, sealed = shared_mode()
  present = present or wanted_mode(head)
  if present and kind_of(present) ~= 'm' then return {'other', present} end
end
if value then
  if owner == OWNER then
    if redis.call('PTTL', LOCK) < FIRST then redis.call('PEXPIRE', LOCK, FIRST) end
    return {'held', fence}
  end
  if owner then tell_keeper(value, owner, fence) end
  left = redis.call('PTTL', LOCK)
  -- A string that expires is another library's lock: it excludes us, and we wait. One that never
  -- expires is data of another program, unless the user says that other libraries lock with this key.
  if not owner and left == -1 and not OTHERS then return {'foreign'} end
  if not owner and OTHERS then
    waited = true
    -- They are here, so the next pause for them is due soon. Only a hint, so a full server may refuse it.
    redis.pcall('SET', OTHERS, '100|' .. text(now_ms() + 200) .. '|0', 'PX', 10000)
  end
  local longest = owner and longest_of(value)
  if owner and left > longest then
    redis.call('PEXPIRE', LOCK, longest)
    left = longest
  end
elseif sealed then
  left = redis.call('PTTL', HOLDERS)
else
  left = head ~= nil and left_to_others() or nil
  waited = left ~= nil
  if left then
    -- It stays free.
  elseif head == nil or head == WAITER or ARGV[9] == '1' then
    local withheld = withheld_ms()
    if withheld > 0 then return {'withheld', withheld} end
    if head ~= nil then
      redis.call('ZREM', LINE, WAITER)
      redis.call('ZREM', LIFE, WAITER)
    end
    fence = hold(WAITER)
    if ARGV[14] then redis.call('ZADD', INDEX, now_ms(), NAME) end
    live_head()
    return {'held', fence}
  else
    grant_next()
    value = redis.call('GET', LOCK)
    -- The head that was granted may be this very contender.
    if value then
      owner, fence = holder_of(value)
      if owner == OWNER then return {'held', fence} end
    end
  end
end

local again = unswept and 1 or 0
local position, ticket = place_in_line(WAITER)
-- No library pushes to ours, so the first in the queue has to ask often, and more often the longer it waits.
waited = waited and math.max(0, now_ms() - math.floor((redis.call('ZSCORE', LINE, WAITER) or now_us()) / 1000)) or nil
left = left or redis.call('PTTL', LOCK)
return {
  'wait', ticket or redis.call('GET', COUNTER) or '0', position, left, value or '', text(now_ms()), left, again, waited,
}
