-- Tells the one who has waited longest that the lock is free here, and keeps it free for a moment.
-- Invariant: grants nothing; whoever is told still has to win a majority. Loops are bounded.
-- KEYS: 1 lock, 2 crowd, 3 signs of life, 4 index of names, 5 turn
-- ARGV: 1 owner, 2 inbox channel prefix, 3 name in the index, 4 ms for which it is somebody's turn
local REAPED, UNHEARD = 64, 4

-- Pre: the lock is free. Returns the client that was told, if any.
local function tell_next()
  local time, unheard = redis.call('TIME'), 0
  local now_ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
  for _, waiter in ipairs(redis.call('ZRANGE', KEYS[2], 0, REAPED - 1)) do
    local silent_at = redis.call('ZSCORE', KEYS[3], waiter)
    if silent_at and tonumber(silent_at) > now_ms then
      local owner, client, listens = string.match(waiter, '^(%x+)|([^|]*)|%d+|%d+|(%d)|')
      local heard = listens == '1' and redis.pcall('PUBLISH', ARGV[2] .. client, 'hint|' .. owner .. '|0')
      if type(heard) == 'number' and heard > 0 then
        redis.call('SET', KEYS[5], owner, 'PX', ARGV[4])
        return client
      end
      -- It finds out by its next poll, if it lives.
      unheard = unheard + 1
      if unheard == UNHEARD then return nil end
    else
      redis.call('ZREM', KEYS[2], waiter)
      redis.call('ZREM', KEYS[3], waiter)
    end
  end
  if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('ZREM', KEYS[4], ARGV[3]) end
  return nil
end
