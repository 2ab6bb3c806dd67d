-- The usual case of poll, before anything else is set up: the lock is free, nobody shares its name, and
-- nobody stands in line.
-- Does exactly what poll would do then, in a third of the time; otherwise changes nothing but the
-- counter, and the script goes on. The numbers of KEYS and ARGV are those of poll.
do
  local both = redis.call('MGET', KEYS[1], KEYS[4])
  if not both[1] and ARGV[3] == '' and redis.call('EXISTS', KEYS[2], KEYS[7]) == 0 then
    local time = redis.call('TIME')
    local number = time[1] * 1000000 + time[2]
    local acquired = string.format('%.0f', math.floor(number / 1000))
    local last = tonumber(both[2] or 0)
    if last >= number then number = last + 1 end
    local fence = string.format('%.0f', number)
    redis.call('SET', KEYS[4], fence)
    -- NX: MGET shows a key of another type as absent, and foreign data must not be overwritten.
    if redis.call('SET', KEYS[1], ARGV[5] .. '|pl1|00000000|' .. fence .. '|' .. acquired .. ARGV[13],
      'NX', 'PX', ARGV[7]) then
      redis.call('ZADD', KEYS[5], acquired, ARGV[2])
      return {'held', fence}
    end
  end
end
