-- The usual case of shared_release, before anything else is set up: nobody stands in line. Does what
-- shared_release would do then, in half of the time; otherwise changes nothing, and the script goes on. The
-- numbers of KEYS and ARGV are those of shared_release.
if redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  local mode, fence = string.match(redis.call('HGET', KEYS[8], ARGV[5]) or '', '^([^|]+)|%x+|pl1|%d+|(%d+)|')
  if fence ~= ARGV[6] then return 0 end
  local member = ARGV[5] .. '|' .. fence .. '|' .. mode
  local ends, time = redis.call('ZSCORE', KEYS[7], member), redis.call('TIME')
  if ends and tonumber(ends) > math.floor((time[1] * 1000000 + time[2]) / 1000) then
    redis.call('ZREM', KEYS[7], member)
    redis.call('HDEL', KEYS[8], ARGV[5])
    if redis.call('EXISTS', KEYS[7]) == 0 then redis.call('ZREM', KEYS[5], ARGV[2]) end
    return 1
  end
end
