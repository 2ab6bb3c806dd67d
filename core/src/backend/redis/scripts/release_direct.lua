-- The usual cases of release, before anything else is set up: nobody stands in line, or the first in line
-- listens and those in front are live. Does exactly what release would do then, in half of the time.
-- Otherwise changes nothing, and the script goes on; so it does if the message reached nobody, with the
-- lock freed. The numbers of KEYS and ARGV are those of release.
local freed = false
do
  local value = redis.call('GET', KEYS[1])
  local prefix, fence = ARGV[5] .. '|pl1|', ARGV[6] .. '|'
  -- owner (32), |pl1| (5), renewals (8), | (1): the fence begins at 47.
  if not value or string.sub(value, 1, 37) ~= prefix or string.sub(value, 47, 46 + #fence) ~= fence then
    return 0
  end
  local line = redis.call('ZRANGE', KEYS[2], 0, 1)
  local first, second = line[1], line[2]
  if not first then
    redis.call('DEL', KEYS[1])
    redis.call('ZREM', KEYS[5], ARGV[2])
    return 1
  end
  local owner, client, provisional, lease, label =
    string.match(first, '^(%x+)|([^|]*)|(%d+)|(%d+)|1|m|([^|]*)$')
  if owner and ARGV[3] == '' then
    local time = redis.call('TIME')
    local number = time[1] .. string.sub(1000000 + time[2], 2)
    local acquired = string.sub(number, 1, -4)
    local now_ms = tonumber(acquired)
    local one, two = redis.call('ZSCORE', KEYS[3], first), second and redis.call('ZSCORE', KEYS[3], second)
    if one and tonumber(one) > now_ms and (not second or two and tonumber(two) > now_ms) then
      redis.call('DEL', KEYS[1])
      freed = true
      local last = redis.call('GET', KEYS[4])
      if last and tonumber(last) >= tonumber(number) then number = string.format('%.0f', last + 1) end
      redis.call('SET', KEYS[4], number)
      redis.call('SET', KEYS[1], owner .. '|pl1|00000000|' .. number .. '|' .. acquired .. '|' .. provisional
        .. '|' .. lease .. '|' .. client .. '|' .. label, 'PX', provisional)
      local heard = redis.pcall('PUBLISH', ARGV[1] .. client, 'granted|' .. owner .. '|' .. number)
      if type(heard) == 'table' or heard > 0 then
        redis.call('ZREM', KEYS[2], first)
        redis.call('ZREM', KEYS[3], first)
        return 1
      end
      redis.call('DEL', KEYS[1])
    end
  end
end

