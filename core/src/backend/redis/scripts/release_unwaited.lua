-- The usual case of release, before anything else is set up: nobody stands in line. Otherwise
-- changes nothing, and the script goes on. The numbers of KEYS and ARGV are those of release.
do
  local value = redis.call('GET', KEYS[1])
  local prefix = ARGV[5] .. '|pl1|'
  local fence = ARGV[6] .. '|'
  -- owner (32), |pl1| (5), renewals (8), | (1): the fence begins at 47.
  if not value or string.sub(value, 1, 37) ~= prefix or string.sub(value, 47, 46 + #fence) ~= fence then
    return 0
  end
  if redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('DEL', KEYS[1])
    redis.call('ZREM', KEYS[5], ARGV[2])
    return 1
  end
end
