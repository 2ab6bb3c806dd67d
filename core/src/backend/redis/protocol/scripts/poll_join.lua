-- The next usual case of poll, before anything else is set up: somebody holds the mutex, and who asks
-- joins a line whose first is live, or that is empty. Does exactly what poll would do then, in about half
-- of the time, which whoever is handed the lock meanwhile does not wait for; otherwise changes nothing,
-- and the script goes on.
-- KEYS and ARGV as in poll_free
do
  local call, match = redis.call, string.match
  local lock, line, counter = KEYS[1], KEYS[2], KEYS[3]
  local value = redis.pcall('GET', lock)
  local ours = '^(%x+)|pl1|%d+|%d+|%d+|(%d+)|(%d+)|'
  local owner, granted, renewed = match(type(value) == 'string' and value or '', ours)
  local longest, near, far, count, limit, listens, name
  if owner and owner ~= ARGV[1] then
    longest, near, far, count, limit, listens, name =
      match(ARGV[4], '^%S+ (%d+) . 1 %d (%S+) (%S+) (%d+) (%S+) (%d) (.*)$')
  end
  local left = longest and call('PTTL', lock)
  if left and left <= math.min(longest, math.max(granted, renewed)) then
    local lease, client, label = match(ARGV[2], '^|%d+|(%d+)|([^|]*)|([^|]*)$')
    local waiter = ARGV[1] .. '|' .. client .. '|' .. ARGV[3] .. '|' .. lease .. '|' .. listens .. '|m|' .. label
    local life, first, time = string.sub(line, 1, -5) .. 'life', call('ZRANGE', line, 0, 0)[1], call('TIME')
    local number = time[1] .. string.sub('00000' .. time[2], -6)
    local now = string.sub(number, 1, -4)
    local now_ms, silent_at = tonumber(now), first and call('ZSCORE', life, first)
    local is_live = not first or silent_at and tonumber(silent_at) > now_ms
    -- A client that keeps its lease after a release is notified by poll. To keep it is a renewal.
    local kept = string.find(value, '|00000000|', 37, true) ~= 37 and call('EXISTS', string.sub(line, 1, -5) .. 'kept') == 1
    if is_live and not kept and not (first and call('ZSCORE', line, waiter)) then
      local last = call('GET', counter)
      if last and (tonumber(last) or 2^53) >= tonumber(number) then number = number_after(last) end
      call('SET', counter, number)
      call('ZADD', line, number, waiter)
      local position = first and call('ZCARD', line) - 1 or 0
      -- Who stands in line keeps the lock in the index.
      if not first then call('ZADD', string.sub(counter, 1, -6) .. 'locks', now, name) end
      near, far = tonumber(near), tonumber(far)
      local heartbeat = position < tonumber(count) and near or far
      call('ZADD', life, now_ms + heartbeat, waiter)
      -- The sign of life of a live first keeps both for a minute longer than it lasts.
      if not first or heartbeat > 60000 then
        local keep = math.floor(math.max(heartbeat, far)) + 60000
        call('PEXPIRE', line, keep)
        call('PEXPIRE', life, keep)
      end
      -- As keep_deadline does.
      if limit ~= '-' then
        local deadlines, oldest = string.sub(line, 1, -5) .. 'until', first and call('ZSCORE', line, first) or number
        redis.pcall('ZREMRANGEBYSCORE', deadlines, '-inf', '(' .. oldest)
        call('ZADD', deadlines, number, number .. '|' .. string.format('%.0f', now_ms + limit))
        call('PEXPIRE', deadlines, string.format('%.0f', math.max(call('PTTL', deadlines), limit + 60000)))
      end
      return {'wait', number, position, left, value, now}
    end
  end
end
