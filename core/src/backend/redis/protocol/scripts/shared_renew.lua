-- Extends leases that are still exactly (owner, fence), of locks that can be shared.
-- Invariant: never creates a lease (XX, and only one that has not ended), never shortens one, touches no
-- key but those of the locks named, and writes by PEXPIRE first, after which a full memory does not stop it. One lock whose
-- keys hold foreign data by now does not keep the others from being extended.
-- KEYS: for each its holders and its details. ARGV: for each its owner, its fence, the lease in ms, the
-- number of this renewal in eight digits, and the length of the leases that its holder asks for.
local time = redis.call('TIME')
local now_ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local function of_another_type(answer)
  return type(answer) == 'table' and answer.err and string.find(answer.err, 'WRONGTYPE', 1, true)
end
local answers = {}
for at = 1, #KEYS / 2 do
  local holders, details, base = KEYS[2 * at - 1], KEYS[2 * at], (at - 1) * 5
  local owner, lease, answer = ARGV[base + 1], tonumber(ARGV[base + 3]), 0
  local value = redis.pcall('HGET', details, owner)
  if type(value) == 'table' then
    if not of_another_type(value) then return value end
    value = false
  end
  local mode, fence = string.match(value or '', '^([^|]+)|%x+|pl1|%d+|(%d+)|')
  if fence == ARGV[base + 2] then
    local member = owner .. '|' .. fence .. '|' .. mode
    local ends = redis.pcall('ZSCORE', holders, member)
    if type(ends) == 'table' then
      if not of_another_type(ends) then return ends end
      ends = false
    end
    if ends and tonumber(ends) > now_ms then
      redis.call('PEXPIRE', holders, math.max(redis.call('PTTL', holders), lease))
      redis.call('PEXPIRE', details, math.max(redis.call('PTTL', details), lease))
      ends = math.max(ends, now_ms + lease)
      redis.call('ZADD', holders, 'XX', ends, member)
      value = string.gsub(value, '|pl1|%d+|', '|pl1|' .. ARGV[base + 4] .. '|', 1)
      local before, first, length, rest =
        string.match(value, '^([^|]+|%x+|pl1|%d+|%d+|%d+|)(%d+)|(%d+)(|.*)$')
      if length ~= ARGV[base + 5] then
        -- Never less than what is left: others cut the lease to the length on record.
        length = string.format('%.0f', math.max(ends - now_ms, tonumber(ARGV[base + 5])))
        if tonumber(ARGV[base + 4]) == 0 then first = length end
        value = before .. first .. '|' .. length .. rest
      end
      redis.call('HSET', details, owner, value)
      answer = 1
    end
  end
  answers[at] = answer
end
return answers
