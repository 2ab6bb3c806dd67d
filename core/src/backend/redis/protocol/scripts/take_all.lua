-- Takes several locks of different names in one step, or none.
-- Invariant: all are looked at before the first one is touched, so what cannot be had together leaves no
-- trace, and every prefix of the writes leaves leases that end by themselves.
-- KEYS: 1 to 8 as for a lock that can be shared, of the first; then for each other one its lock, line,
-- signs of life, holders and details
-- ARGV: 1 to 4 as always; then for each its name in the index, owner, waiter record, first lease ms, and
-- 1 to barge
local COUNT = (#ARGV - 4) / 5

-- Everything above speaks of the lock that is chosen here. Returns what its contender says.
local function choose(at)
  local key, arg = at == 1 and 1 or 5 * at - 1, 5 * at
  LOCK, LINE, LIFE = KEYS[key], KEYS[key + 1], KEYS[key + 2]
  if at == 1 then key = 4 end
  HOLDERS, DETAILS = KEYS[key + 3], KEYS[key + 4]
  NAME, taken = ARGV[arg], nil
  local waiter = ARGV[arg + 2]
  return ARGV[arg + 1], waiter, tonumber(ARGV[arg + 3]), ARGV[arg + 4] == '1',
    string.match(waiter, '|%d|([^|]+)|')
end

local heads, held = {}, {}
for at = 1, COUNT do
  local owner, waiter, first, barges, mode = choose(at)
  end_leases()
  local head = live_head()
  local value = lock_value()
  local by, fence
  if value then by, fence = holder_of(value) end
  local present, sealed = by and 'm', nil
  if not by then present, sealed = shared_mode() end
  present = present or wanted_mode(head)
  if present and kind_of(present) ~= kind_of(mode) then return {'other', at, present} end
  local mine, my_fence = lease_of(owner)
  if by == owner then
    held[at] = fence
  elseif mine then
    held[at] = my_fence
  elseif value then
    local left = redis.call('PTTL', LOCK)
    if not by and left == -1 and not others_key() then return {'foreign', at} end
    if mode ~= 'm' then return {'other', at, 'm'} end
    if by and left > longest_of(value) then redis.call('PEXPIRE', LOCK, longest_of(value)) end
    if by then tell_keeper(value, by, fence) end
    return {'refused'}
  else
    no_longer_than_longest(first)
    if head ~= nil and head ~= waiter and not barges then return {'refused'} end
    if sealed or mode ~= 'm' and not admits(mode) then return {'refused'} end
  end
  -- nil would leave a hole: false says that nobody was found, or that nobody knows.
  heads[at] = head ~= nil
end

for at = 1, COUNT do
  if not held[at] then
    local withheld = withheld_ms()
    if withheld > 0 then return {'withheld', withheld} end
    local _, waiter, _, _, mode = choose(at)
    local first, lease = string.match(waiter, '^%x+|[^|]*|(%d+)|(%d+)|')
    -- A mutex is listed by its first renewal, if it has one.
    if mode ~= 'm' or first == lease then redis.call('ZADD', INDEX, now_ms(), NAME) end
  end
end
local answer = {'held'}
for at = 1, COUNT do
  local owner, waiter, first, _, mode = choose(at)
  if not held[at] then
    if heads[at] then leave_line(waiter) end
    if mode == 'm' then
      held[at] = hold(waiter)
    else
      local _, _, fence = share(waiter)
      held[at] = fence
    end
  elseif mode == 'm' then
    if redis.call('PTTL', LOCK) < first then redis.call('PEXPIRE', LOCK, first) end
  else
    local member, _, _, ends = lease_of(owner)
    if ends < now_ms() + first then extend(member, now_ms() + first) end
  end
  answer[at + 1] = held[at]
end
-- Those whom one of them overtook may share its lock with it.
for at = 1, COUNT do
  if heads[at] then
    local _, _, _, _, mode = choose(at)
    if mode == 'm' then live_head() else grant_together() end
  end
end
return answer
