-- The end of every poll: stands in line once, keeping the place, and gives a sign of life. Who only tries
-- leaves no trace. Returns the place, and the number drawn if it is new in line. The numbers of ARGV are those of poll.
local function place_in_line(waiter)
  if ARGV[8] ~= '1' then return redis.call('ZCARD', LINE) end
  local position, ticket = redis.call('ZRANK', LINE, waiter), nil
  if not position then
    ticket = next_number()
    redis.call('ZADD', LINE, ticket, waiter)
    redis.call('ZADD', INDEX, now_ms(), NAME)
    position = redis.call('ZRANK', LINE, waiter)
  end
  local heartbeat = position < tonumber(ARGV[12]) and tonumber(ARGV[10]) or tonumber(ARGV[11])
  -- Lines of contenders that are all gone clean themselves up. The first write of who stands in line
  -- already needs no memory, and then a full server takes its sign of life, too.
  local keep = math.floor(math.max(heartbeat, ARGV[11])) + 60000
  redis.call('PEXPIRE', LINE, keep)
  redis.call('ZADD', LIFE, now_ms() + heartbeat, waiter)
  redis.call('PEXPIRE', LIFE, keep)
  return position, ticket
end

