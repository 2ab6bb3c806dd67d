-- Acquire, confirm, sign of life and back-stop in one step.
-- Invariant: answers 'held' only if the lock key names this owner, for at least the first lease
-- from now; a confirmation never shortens a lease that a renewal made longer.
-- ARGV: 5 owner, 6 waiter record, 7 first lease ms, 8 1 to stand in line, 9 1 to barge,
--       10 near heartbeat ms, 11 far heartbeat ms, 12 how many positions count as near,
--       13 |first lease|lease|client|label, the end of a lock value
local OWNER, WAITER, FIRST = ARGV[5], ARGV[6], tonumber(ARGV[7])

local value = redis.call('GET', LOCK)
if value then
  local owner, fence = holder_of(value)
  if owner == OWNER then
    if redis.call('PTTL', LOCK) < FIRST then redis.call('PEXPIRE', LOCK, FIRST) end
    return {'held', fence}
  end
  local left = redis.call('PTTL', LOCK)
  -- A string that expires is another library's lock: it excludes us, and we wait. One that never
  -- expires is somebody's data.
  if not owner and left == -1 then return {'foreign'} end
  -- A server clock that stepped back must not keep a lock for longer than any lease can last.
  if owner and left > LONGEST then redis.call('PEXPIRE', LOCK, LONGEST) end
else
  local head = live_head()
  if not head or head == WAITER or ARGV[9] == '1' then
    local withheld = withheld_ms()
    if withheld > 0 then return {'withheld', withheld} end
    if head then
      redis.call('ZREM', LINE, WAITER)
      redis.call('ZREM', LIFE, WAITER)
    end
    local fence = hold(WAITER)
    redis.call('ZADD', INDEX, now_ms(), NAME)
    return {'held', fence}
  end
  grant_next()
  value = redis.call('GET', LOCK)
  -- The head that was granted may be this very contender.
  if value then
    local owner, fence = holder_of(value)
    if owner == OWNER then return {'held', fence} end
  end
end

local position
if ARGV[8] == '1' then
  position = redis.call('ZRANK', LINE, WAITER)
  if not position then
    redis.call('ZADD', LINE, next_number(), WAITER)
    redis.call('ZADD', INDEX, now_ms(), NAME)
    position = redis.call('ZRANK', LINE, WAITER)
  end
  local heartbeat = position < tonumber(ARGV[12]) and tonumber(ARGV[10]) or tonumber(ARGV[11])
  redis.call('ZADD', LIFE, now_ms() + heartbeat, WAITER)
  -- Lines of contenders that are all gone clean themselves up.
  local keep = math.max(heartbeat, tonumber(ARGV[11])) + 60000
  redis.call('PEXPIRE', LINE, keep)
  redis.call('PEXPIRE', LIFE, keep)
else
  position = redis.call('ZCARD', LINE)
end
return {'wait', redis.call('GET', COUNTER) or '0', position, redis.call('PTTL', LOCK), value or '', text(now_ms())}
