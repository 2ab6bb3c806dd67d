-- Acquire, confirm, sign of life and back-stop in one step.
-- Invariant: answers 'held' only if the lock key names this owner, for at least the first lease
-- from now; a confirmation never shortens a lease that a renewal made longer.
-- ARGV: 5 owner, 6 waiter record, 7 first lease ms, 8 1 to stand in line, 9 1 to barge,
--       10 near heartbeat ms, 11 far heartbeat ms, 12 how many positions count as near,
--       13 not empty if a grant is to be listed now
local OWNER, WAITER, FIRST = ARGV[5], ARGV[6], tonumber(ARGV[7])

local value = redis.call('GET', LOCK)
local head = live_head()
local owner, fence, left
if value then owner, fence = holder_of(value) end
if not owner then
  local present = shared_mode() or wanted_mode(head)
  if present and kind_of(present) ~= 'm' then return {'other', present} end
end
if value then
  if owner == OWNER then
    if redis.call('PTTL', LOCK) < FIRST then redis.call('PEXPIRE', LOCK, FIRST) end
    return {'held', fence}
  end
  left = redis.call('PTTL', LOCK)
  -- A string that expires is another library's lock: it excludes us, and we wait. One that never
  -- expires is somebody's data.
  if not owner and left == -1 then return {'foreign'} end
  -- A server clock that stepped back must not keep a lock for longer than any lease can last.
  if owner and left > LONGEST then
    redis.call('PEXPIRE', LOCK, LONGEST)
    left = LONGEST
  end
else
  if head == nil or head == WAITER or ARGV[9] == '1' then
    local withheld = withheld_ms()
    if withheld > 0 then return {'withheld', withheld} end
    if head ~= nil then
      redis.call('ZREM', LINE, WAITER)
      redis.call('ZREM', LIFE, WAITER)
    end
    fence = hold(WAITER)
    if ARGV[13] then redis.call('ZADD', INDEX, now_ms(), NAME) end
    live_head()
    return {'held', fence}
  end
  grant_next()
  value = redis.call('GET', LOCK)
  -- The head that was granted may be this very contender.
  if value then
    owner, fence = holder_of(value)
    if owner == OWNER then return {'held', fence} end
  end
end

local position, ticket = place_in_line(WAITER)
return {
  'wait', ticket or redis.call('GET', COUNTER) or '0', position, left or redis.call('PTTL', LOCK), value or '',
  text(now_ms()),
}
