-- The usual cases of release, before anything else is set up: nobody stands in line, or the first in line
-- listens and those in front are live. Does exactly what release would do then, in half of the time.
-- Otherwise changes nothing, and the script goes on; so it does if the message reached nobody, with the
-- lock freed. Every argument costs, so there are few.
-- KEYS: 1 lock, 2 line, 3 counter. ARGV: 1 owner, 2 |fence|, 3 the rest, for unpack,
-- 4 the name if it was listed by the grant
local freed = false
do
  local call = redis.call
  local value = redis.pcall('GET', KEYS[1])
  -- owner (32), |pl1| (5), renewals (8): the fence begins at 46.
  if type(value) ~= 'string' or string.find(value, ARGV[1], 1, true) ~= 1 or string.find(value, ARGV[2], 46, true) ~= 46 then
    return 0
  end
  if call('EXISTS', KEYS[2]) == 0 then
    call('DEL', KEYS[1])
    -- The first renewal lists a lock, so most are not in the index.
    if ARGV[4] or string.find(value, '|00000000|', 37, true) ~= 37 then
      local name = ARGV[4] or string.match(ARGV[3], '^%S+ %d+ . (.*)$')
      call('ZREM', string.sub(KEYS[3], 1, -6) .. 'locks', name)
    end
    return 1
  end
  local line = call('ZRANGE', KEYS[2], 0, 1)
  local first, second = line[1], line[2]
  local owner, client, provisional, lease, label =
    string.match(first, '^(%x+)|([^|]*)|(%d+)|(%d+)|1|m|([^|]*)$')
  local inbox, strict, name = string.match(ARGV[3], '^(%S+) %d+ (.) (.*)$')
  local of_name = string.sub(KEYS[2], 1, -5)
  if KEYS[1] ~= of_name .. 'lock' then
    -- Other libraries poll this key, and would never find it free while ours hand it on: from time to time it is
    -- left to them for as long as they may take to ask; twice as long after each pause in which none was seen.
    local others, time = of_name .. 'others', call('TIME')
    local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
    local every, due = string.match(call('GET', others) or '', '^(%d+)|(%d+)|')
    if not due or tonumber(due) <= now_ms then
      every = math.min(2 * (every or 1000), 2000)
      call('DEL', KEYS[1])
      call('SET', others, string.format('%.0f|%.0f|%.0f', every, now_ms + every, now_ms + 200), 'PX', 10000)
      if owner then redis.pcall('PUBLISH', inbox .. client, 'hint|' .. owner .. '|0') end
      return 1
    end
  end
  if owner and strict == '-' then
    local life, time = string.sub(KEYS[2], 1, -5) .. 'life', call('TIME')
    local number = time[1] .. string.sub('00000' .. time[2], -6)
    local acquired = string.sub(number, 1, -4)
    local now_ms = tonumber(acquired)
    local one, two = call('ZSCORE', life, first), second and call('ZSCORE', life, second)
    if one and tonumber(one) > now_ms and (not second or two and tonumber(two) > now_ms) then
      call('DEL', KEYS[1])
      freed = true
      local last = call('GET', KEYS[3])
      if last and (tonumber(last) or 2^53) >= tonumber(number) then number = number_after(last) end
      call('SET', KEYS[3], number)
      call('SET', KEYS[1], owner .. '|pl1|00000000|' .. number .. '|' .. acquired .. '|' .. provisional .. '|'
        .. lease .. '|' .. client .. '|' .. label, 'PX', provisional)
      local heard = redis.pcall('PUBLISH', inbox .. client, 'granted|' .. owner .. '|' .. number)
      -- A refused publish (a table) says nothing about the waiter, which will find out by its poll.
      if type(heard) == 'table' or heard > 0 then
        call('ZREM', KEYS[2], first)
        call('ZREM', life, first)
        -- It was listed because somebody waited. The new holder's first renewal lists it again.
        if not second and provisional ~= lease then call('ZREM', string.sub(KEYS[3], 1, -6) .. 'locks', name) end
        return 1
      end
      call('DEL', KEYS[1])
    end
  end
end
