-- One node's vote for a contender: takes the lock of this node if it is free, or says who has it.
-- Invariants: votes only while the gate is exactly the one that the client knows; draws a new number for
-- every yes, larger than any before on this node, also when it had said yes to this owner before, so that
-- (owner, number) names one yes; a yes never shortens a lease; a no never writes the lock.
-- KEYS: 1 lock, 2 crowd (zset waiter -> since µs), 3 signs of life (zset waiter -> ms), 4 counter,
--       5 index of names, 6 gate, 7 turn (whose turn it is, for a moment after a release)
-- ARGV: 1 owner, 2 the open gate, 3 proposed number, 4 |first lease|lease|client|label, 5 first lease ms,
--       6 longest lease ms, 7 name in the index, 8 waiter record, empty to leave no trace, 9 how long it
--       counts as alive in ms, 10 since when it waits in µs
local known = redis.call('MGET', KEYS[1], KEYS[4], KEYS[6], KEYS[7])
if known[3] ~= ARGV[2] then return {'closed'} end
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = string.format('%.0f', math.floor(now_us / 1000))
local value = known[1]
local owner = value and string.match(value, '^(%x+)|pl1|')
if owner == ARGV[1] or (not value and (not known[4] or known[4] == ARGV[1])) then
  -- A proposal that is far from this node's clock would carry a wrong clock into the tokens.
  local number = tonumber(ARGV[3])
  if number > now_us + 60000000 or number < now_us - 60000000 then number = now_us end
  local last = tonumber(known[2] or 0)
  if last >= number then number = last + 1 end
  local text = string.format('%.0f', number)
  redis.call('SET', KEYS[4], text)
  local lock, first = ARGV[1] .. '|pl1|00000000|' .. text .. '|' .. now_ms .. ARGV[4], tonumber(ARGV[5])
  if owner then
    redis.call('SET', KEYS[1], lock, 'PX', math.max(first, redis.call('PTTL', KEYS[1])))
  elseif not redis.call('SET', KEYS[1], lock, 'NX', 'PX', first) then
    -- MGET shows a key of another type as absent.
    return {'foreign'}
  end
  redis.call('ZADD', KEYS[5], now_ms, ARGV[7])
  -- Who holds does not wait; whoever takes this yes back stands here again.
  if ARGV[8] ~= '' and redis.call('EXISTS', KEYS[2]) == 1 then
    redis.call('ZREM', KEYS[2], ARGV[8])
    redis.call('ZREM', KEYS[3], ARGV[8])
  end
  return {'yes', text, now_ms}
end
local left = redis.call('PTTL', value and KEYS[1] or KEYS[7])
if value then
  -- A string that expires is another library's lock; one that never expires is somebody's data.
  if not owner and left == -1 then return {'foreign'} end
  -- A clock that stepped back must not keep a lock for longer than any lease can last.
  if owner and left > tonumber(ARGV[6]) then redis.call('PEXPIRE', KEYS[1], ARGV[6]) end
end
local place
if ARGV[8] == '' then
  place = redis.call('ZCARD', KEYS[2])
else
  stand_in_crowd(ARGV[8], ARGV[10], ARGV[9], now_us)
  redis.call('ZADD', KEYS[5], now_ms, ARGV[7])
  place = redis.call('ZRANK', KEYS[2], ARGV[8])
end
return {'no', known[2] or '0', place, left, value or '', now_ms, known[4] or ''}
