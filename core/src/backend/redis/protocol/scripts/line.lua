-- Records, for display, when a waiter that was queued under this number gives up, if it waits with a limit. Deadlines from
-- before the first in the queue are over; a user who may not remove them leaves them to their end. Invariant: read by
-- nothing that grants.
local function keep_deadline(ticket)
  local limit = tonumber(ARGV[13])
  if not limit then return end
  local deadlines, first = deadlines_key(), redis.call('ZRANGE', LINE, 0, 0, 'WITHSCORES')
  redis.pcall('ZREMRANGEBYSCORE', deadlines, '-inf', '(' .. first[2])
  redis.call('ZADD', deadlines, ticket, ticket .. '|' .. text(now_ms() + limit))
  redis.call('PEXPIRE', deadlines, text(math.max(redis.call('PTTL', deadlines), limit + 60000)))
end

-- The end of every poll: stands in line once, keeping the place, and gives a sign of life. Who only tries
-- leaves no trace. Returns the place, and the number drawn if it is new in line. The numbers of ARGV are those of poll.
local function place_in_line(waiter)
  if ARGV[8] ~= '1' then return redis.call('ZCARD', LINE) end
  local position, ticket = redis.call('ZRANK', LINE, waiter), nil
  if not position then
    ticket = next_number()
    redis.call('ZADD', LINE, ticket, waiter)
    keep_deadline(ticket)
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

