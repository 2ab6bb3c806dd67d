-- The usual case of poll, before anything else is set up: the lock is free, nobody shares its name, and
-- nobody stands in line. Does exactly what poll would do then, in a third of the time; otherwise changes
-- nothing, and the script goes on. Every argument costs, so there are few: the other keys are spelled
-- from these in unpack, and what only matters to who waits comes in one text.
-- KEYS: 1 lock, 2 line, 3 counter. ARGV: 1 owner, 2 |first lease|lease|client|label, the end of a lock
-- value, 3 first lease ms, 4 the rest, for unpack, 5 the name if it is to be listed now: it is not renewed
-- soon, which would list it
do
  local call, lock = redis.call, KEYS[1]
  if call('EXISTS', lock, KEYS[2], string.sub(KEYS[2], 1, -5) .. 'holders') == 0 then
    local last, time = call('GET', KEYS[3]), call('TIME')
    local fence = time[1] .. string.sub('00000' .. time[2], -6)
    local acquired = string.sub(fence, 1, -4)
    if last and (tonumber(last) or 2^53) >= tonumber(fence) then fence = number_after(last) end
    call('SET', KEYS[3], fence)
    call('SET', lock, ARGV[1] .. '|pl1|00000000|' .. fence .. '|' .. acquired .. ARGV[2], 'PX', ARGV[3])
    if ARGV[5] then call('ZADD', string.sub(KEYS[3], 1, -6) .. 'locks', acquired, ARGV[5]) end
    return fence
  end
end
