-- Extends a mutex that is still exactly (owner, fence) and not in use, and sets numbers aside for its holder; or, if
-- a client is queued, releases it as `release` does.
-- Invariant: numbers that are set aside are given out by nothing else, and the lease is never shortened.
-- ARGV: 5 owner, 6 fence, 7 lease ms, 8 the number of this renewal in eight digits, 9 how many numbers, 10 how far in
--       µs they may be ahead of the clock, 11 how its client listens, 12 its client
local value, owner, fence = lock_value(), nil, nil
if value then owner, fence = holder_of(value) end
if owner ~= ARGV[5] or fence ~= ARGV[6] then return {'no'} end
if live_head() ~= nil then
  redis.call('DEL', LOCK)
  unlist_if_free(grant_next())
  return {'released'}
end
local lease, count = tonumber(ARGV[7]), tonumber(ARGV[9])
local first, last
if count > 0 then
  first = math.max(tonumber(number_after(redis.call('GET', COUNTER) or '0')), now_us())
  last = math.min(first + count - 1, now_us() + tonumber(ARGV[10]))
  if first <= last then redis.call('SET', COUNTER, text(last)) else first = nil end
end
local left = redis.call('PTTL', LOCK)
-- owner (32), |pl1| (5), renewals (8)
if string.sub(value, 38, 45) < ARGV[8] then
  redis.call('SET', LOCK, string.sub(value, 1, 37) .. ARGV[8] .. string.sub(value, 46), 'PX', text(math.max(left, lease)))
elseif left < lease then
  redis.call('PEXPIRE', LOCK, ARGV[7])
end
redis.call('ZADD', INDEX, now_ms(), NAME)
local kept = owner .. '|' .. fence .. '|' .. text(now_ms() + lease) .. '|' .. ARGV[11] .. '|' .. ARGV[12]
redis.call('SET', kept_key(), kept, 'PX', ARGV[7])
if not first then return {'kept'} end
return {'kept', text(first), text(last)}
