-- Those who wait on this node, each once, in the order in which they began to wait by their own clocks: so
-- all nodes tell the same one first, as far as the clocks agree.
-- KEYS: 2 crowd (zset waiter -> since us), 3 signs of life (zset waiter -> ms)
local function stand_in_crowd(waiter, since_us, alive, now_us)
  local now_ms = math.floor(now_us / 1000)
  if not redis.call('ZSCORE', KEYS[2], waiter) then
    redis.call('ZADD', KEYS[2], string.format('%.0f', math.min(tonumber(since_us), now_us)), waiter)
  end
  redis.call('ZADD', KEYS[3], string.format('%.0f', now_ms + tonumber(alive)), waiter)
  -- A crowd that is all gone cleans itself up.
  redis.call('PEXPIRE', KEYS[2], tonumber(alive) + 60000)
  redis.call('PEXPIRE', KEYS[3], tonumber(alive) + 60000)
  local gone = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now_ms), 'LIMIT', 0, 64)
  for _, silent in ipairs(gone) do
    redis.call('ZREM', KEYS[2], silent)
    redis.call('ZREM', KEYS[3], silent)
  end
end

