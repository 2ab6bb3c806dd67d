-- Shared by every script for locks that several can hold together: readers, or holders of permits.
-- Invariants, besides those of the common part:
--   * one member of the holders is one lease: owner, fence, mode and, as its score, when it ends. It is
--     made by one ZADD, and only a score above the server's clock counts, so a lease ends by itself;
--   * no two leases are held beside each other that exclude each other;
--   * the details are for people, for finding the lease of an owner, and never more than that: a lease
--     without details cannot be found any more and ends.
-- KEYS: 7 holders (zset owner|fence|mode -> end ms), 8 details (hash owner -> mode|a lock value)
local DETAILS = KEYS[8]
local TOGETHER = 64
local taken

-- Removes the leases that have ended: they are over for good, whatever the clock does next. Writes only
-- if there are any, because a script that has written is not stopped by a full memory any more.
local function end_leases()
  local ended = redis.call('ZRANGEBYSCORE', HOLDERS, '-inf', now_ms(), 'LIMIT', 0, 1000)
  if #ended == 0 then return end
  redis.call('ZREMRANGEBYSCORE', HOLDERS, '-inf', now_ms())
  for _, member in ipairs(ended) do redis.call('HDEL', DETAILS, string.match(member, '^%x*')) end
end

-- Pre: end_leases. Returns member, fence, mode and end of this owner's lease, or nothing.
local function lease_of(owner)
  local value = redis.call('HGET', DETAILS, owner)
  if not value then return nil end
  local mode, fence = string.match(value, '^([^|]+)|%x+|pl1|%d+|(%d+)|')
  if not mode then return nil end
  local member = owner .. '|' .. fence .. '|' .. mode
  local ends = redis.call('ZSCORE', HOLDERS, member)
  if ends then return member, fence, mode, tonumber(ends), value end
end

-- A lease of another version takes all.
local function permits_of(member) return tonumber(string.match(member, '^%x+|%d+|p(%d+)/%d+$')) or math.huge end

-- Pre: end_leases; the holders are of the same kind.
local function admits(mode)
  if mode == 'w' then return redis.call('EXISTS', HOLDERS) == 0 end
  if mode == 'r' then
    local one = redis.call('ZRANGE', HOLDERS, 0, 0)[1]
    return not one or mode_of_holder(one) == 'r'
  end
  -- A mutex that waits behind leases of another version enters by its own poll.
  if mode == 'm' then return false end
  if not taken then
    taken = 0
    for _, member in ipairs(redis.call('ZRANGE', HOLDERS, 0, -1)) do taken = taken + permits_of(member) end
  end
  local count, capacity = string.match(mode, '^p(%d+)/(%d+)$')
  return taken + tonumber(count) <= tonumber(capacity)
end

-- Both keys live as long as the longest lease. PEXPIRE needs no memory, and after it the script may also
-- write what does: so a lease is extended on a server whose memory is full.
local function keep_until(ends)
  for _, key in ipairs({HOLDERS, DETAILS}) do
    redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), ends - now_ms()))
  end
end

local function extend(member, ends)
  keep_until(ends)
  redis.call('ZADD', HOLDERS, 'XX', ends, member)
end

-- A server clock that stepped back must not keep a lease for longer than it can last. One that ends within
-- the length of a first lease, of the contender's, is not looked at.
local function no_longer_than_longest(first)
  local last = redis.call('ZRANGE', HOLDERS, -64, -1, 'WITHSCORES')
  for at = 1, #last, 2 do
    local left = last[at + 1] - now_ms()
    if left > first then
      local longest = longest_of(redis.call('HGET', DETAILS, string.match(last[at], '^%x*')) or '')
      if left > longest then extend(last[at], now_ms() + longest) end
    end
  end
end

-- Pre: end_leases; admits the waiter's mode.
local function share(waiter)
  local owner, client, first, lease, listens, mode, label = waiter_of(waiter)
  local fence = next_number()
  local member = owner .. '|' .. fence .. '|' .. mode
  local ends = now_ms() + tonumber(first)
  redis.call('HSET', DETAILS, owner, mode .. '|' .. owner .. '|pl1|00000000|' .. fence .. '|'
    .. text(now_ms()) .. '|' .. first .. '|' .. lease .. '|' .. client .. '|' .. label)
  redis.call('ZADD', HOLDERS, ends, member)
  keep_until(ends)
  if taken then taken = taken + permits_of(member) end
  return member, owner, fence, client, listens
end

local function give_up(member)
  redis.call('ZREM', HOLDERS, member)
  redis.call('HDEL', DETAILS, string.match(member, '^%x+'))
  if taken then taken = taken - permits_of(member) end
end

local function leave_line(waiter)
  redis.call('ZREM', LINE, waiter)
  redis.call('ZREM', LIFE, waiter)
end

-- Pre: end_leases. Grants to those at the head of the line who can have it now: one, or several
-- together. Stops at the first who cannot, so that nobody overtakes. Whom no message reached keeps its
-- place as in grant_next, and only it is passed over; if nobody is reached, the first one gets it.
-- Returns the first client, if any.
local function grant_together()
  local head = live_head()
  if not head or redis.call('EXISTS', LOCK) == 1 then return nil end
  local granted, first_client, kept, unheard, silent = 0, nil, 0, nil, 0
  local withheld, page, looked, full = nil, nil, 0, false
  repeat
    -- Those who left the queue have moved the others on.
    page = redis.call('ZRANGE', LINE, kept, kept + TOGETHER - 1)
    for _, waiter in ipairs(page) do
      local silent_at, mode = live_until(waiter), wanted_mode(waiter)
      if silent_at then
        silent = 0
        full = granted == TOGETHER or mode and not admits(mode)
        if full then break end
        withheld = withheld or withheld_ms()
        if withheld > 0 then return first_client end
        local finds_out = silent_at % 1 > 0
        if not mode then
          -- Of another version: it keeps its place.
          kept = kept + 1
        elseif not finds_out and is_away(waiter) then
          kept, unheard = kept + 1, unheard or waiter
        else
          -- The lease is made before the push leaves: a push must never speak of a grant that failed.
          local member, owner, fence, client, listens = share(waiter)
          if tell(listens, client, 'granted|' .. owner .. '|' .. fence) or finds_out then
            leave_line(waiter)
            granted, first_client = granted + 1, first_client or client
          else
            give_up(member)
            kept, unheard = kept + 1, unheard or waiter
          end
        end
      elseif kept > 0 then
        -- Behind one that keeps its place, none is dropped.
        kept = kept + 1
      elseif silent == REAPED then
        full, unswept = true, granted < TOGETHER
        break
      else
        silent = silent + 1
        leave_line(waiter)
      end
    end
    looked = looked + #page
  until full or #page < TOGETHER or looked >= LOOKED
  if granted == 0 and unheard then
    leave_line(unheard)
    local _, _, _, client = share(unheard)
    first_client = client
  end
  return first_client
end

