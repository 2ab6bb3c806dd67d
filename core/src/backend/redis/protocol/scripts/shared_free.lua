-- The usual case of shared_poll, before anything else is set up: nobody stands in line, and the holders,
-- if there are any, leave room. Does exactly what shared_poll would do then, in half of the time; otherwise
-- changes nothing, and the script goes on. The numbers of KEYS and ARGV are those of shared_poll.
if ARGV[3] == '' and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  local client, first, lease, mode, label =
    string.match(ARGV[6], '^%x+|([^|]*)|(%d+)|(%d+)|%d|([^|]+)|([^|]*)$')
  local count, capacity = string.match(mode, '^p(%d+)(/%d+)$')
  -- The end that comes first: if it has not come, all of them are live. One reader speaks for all.
  local members = redis.call('ZRANGE', KEYS[7], 0, 0, 'WITHSCORES')
  local time = redis.call('TIME')
  local number = time[1] .. string.sub(1000000 + time[2], 2)
  local acquired = string.sub(number, 1, -4)
  local now_ms, some = tonumber(acquired), members[1] ~= nil
  local room = not some
  if some and tonumber(members[2]) > now_ms and not redis.call('HGET', KEYS[8], ARGV[5]) then
    if mode == 'r' then
      room = string.find(members[1], '^%x+|%d+|r$') ~= nil
    elseif count then
      local left = tonumber(string.sub(capacity, 2)) - count
      for _, member in ipairs(redis.call('ZRANGE', KEYS[7], 0, -1)) do
        local taken, of = string.match(member, '^%x+|%d+|p(%d+)(/%d+)$')
        left = of == capacity and left - taken or -1
        if left < 0 then break end
      end
      room = left >= 0
    end
  end
  if room then
    local last = redis.call('GET', KEYS[4])
    if last and (tonumber(last) or 2^53) >= tonumber(number) then number = number_after(last) end
    redis.call('SET', KEYS[4], number)
    redis.call('HSET', KEYS[8], ARGV[5], mode .. '|' .. ARGV[5] .. '|pl1|00000000|' .. number .. '|' .. acquired
      .. '|' .. first .. '|' .. lease .. '|' .. client .. '|' .. label)
    redis.call('ZADD', KEYS[7], string.format('%.0f', now_ms + first), ARGV[5] .. '|' .. number .. '|' .. mode)
    for at = 7, 8 do
      local keep = some and redis.call('PTTL', KEYS[at]) or 0
      if keep < tonumber(first) then redis.call('PEXPIRE', KEYS[at], first) end
    end
    redis.call('ZADD', KEYS[5], acquired, ARGV[2])
    return number
  end
end
