-- Reads one page of the index of names, and with each name what another writing of the lock would change.
-- Changes nothing.
-- The answer has the time in ms, and then a pair for each: the name, and renewals and fence of a lock of ours that nobody waits for
-- and nobody shares; '-' if there is nothing, and '' for everything else, which has to be looked at.
-- KEYS: 1 index of names. ARGV: 1 first place, 2 last place, 3 lock key prefix, 4 lock key suffix,
--       5 line key prefix, 6 line key suffix, 7 suffix of the key of holders that share
local names = redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[2])
local time, beside = redis.call('TIME'), {}
local answer = {time[1] .. string.sub('00000' .. time[2], -6, -4)}
for at, name in ipairs(names) do
  beside[2 * at - 1], beside[2 * at] = ARGV[5] .. name .. ARGV[6], ARGV[5] .. name .. ARGV[7]
end
-- Most locks are held and nothing else: one question for a whole page.
local alone = #names == 0 or redis.call('EXISTS', unpack(beside)) == 0
for at, name in ipairs(names) do
  local mark = ''
  if alone or redis.call('EXISTS', beside[2 * at - 1], beside[2 * at]) == 0 then
    -- A key of another type is an error here, which is a table.
    local value = redis.pcall('GET', ARGV[3] .. name .. ARGV[4])
    if not value then
      mark = '-'
    elseif type(value) == 'string' and string.sub(value, 33, 37) == '|pl1|' then
      mark = string.match(value, '^%d+|%d+', 38) or ''
    end
  end
  answer[2 * at], answer[2 * at + 1] = name, mark
end
return answer
