-- Extends leases on this node, whoever granted them, as long as the lock is the owner's.
-- Invariant: never creates a lock, never shortens a lease (a request may arrive after a later one),
-- touches no key but the locks named, and extends by a bare PEXPIRE before anything else, which works on
-- a server whose memory is full.
-- KEYS: the locks. ARGV: for each its owner, its token, the lease in ms, the number of this renewal in eight
-- digits, and the length of the leases that its holder asks for. Answers for each: 1 extended, 0 there is none, -1 somebody else's
local answers = {}
for at, lock in ipairs(KEYS) do
  local base = (at - 1) * 5
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' then
    if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
    value = ''
  end
  local owner, number, length = string.match(value or '', '^(%x+)|pl1|%d+|(%d+)|%d+|%d+|(%d+)|')
  if owner == ARGV[base + 1] then
    local extended = redis.pcall('PEXPIRE', lock, ARGV[base + 3], 'GT')
    -- Before Redis 7.0 there is no GT.
    if type(extended) == 'table' and redis.call('PTTL', lock) < tonumber(ARGV[base + 3]) then
      redis.call('PEXPIRE', lock, ARGV[base + 3])
    end
    -- For people only, so a refusal (memory is full) does not matter.
    if number == ARGV[base + 2] and length == ARGV[base + 5] then
      redis.pcall('SET', lock, owner .. '|pl1|' .. ARGV[base + 4] .. string.sub(value, #owner + 14), 'KEEPTTL')
    else
      local granted, first, rest = string.match(value, '^%x+|pl1|%d+|%d+(|%d+|)(%d+)|%d+(|.*)$')
      if length ~= ARGV[base + 5] then
        length = string.format('%.0f', math.max(redis.call('PTTL', lock), tonumber(ARGV[base + 5])))
        if tonumber(ARGV[base + 4]) == 0 then first = length end
      end
      redis.pcall('SET', lock, owner .. '|pl1|' .. ARGV[base + 4] .. '|' .. ARGV[base + 2] .. granted .. first
        .. '|' .. length .. rest, 'KEEPTTL')
    end
    answers[at] = 1
  else
    answers[at] = value and -1 or 0
  end
end
return answers
