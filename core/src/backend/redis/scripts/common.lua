-- Shared by every script that can grant. Invariants:
--   * the lock key names at most one (owner, fence), is made by one SET with an expiry, and is
--     never made by anything but a grant;
--   * a number from the counter is never given out twice, and never lies behind the server's clock;
--   * only the server's clock decides what is live; loops are bounded; and because scripts do not
--     roll back, every prefix of the writes leaves a state that the next poll repairs.
-- KEYS: 1 lock (string), 2 line (zset waiter -> ticket), 3 signs of life (zset waiter -> ms),
--       4 counter (string), 5 index of names (zset), 6 epoch gate (string), 7 holders that share
--       (zset; a script that can only find a mutex does without)
-- ARGV: 1 inbox channel prefix, 2 name in the index, 3 not empty under guarantee=strict, 4 longest lease ms
local LOCK, LINE, LIFE, COUNTER, INDEX, GATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local INBOX, NAME, STRICT, LONGEST = ARGV[1], ARGV[2], ARGV[3] ~= '', tonumber(ARGV[4])
local HOLDERS = KEYS[7]
local REAPED, UNHEARD = 64, 4
-- How long a cut-off master may go on after its replicas fell silent: Redis' own min-replicas-max-lag of
-- 10 s, and the two seconds by which it is late, because it counts whole seconds and looks once a second.
local LAG = 12000

local clock_us
local function now_us()
  if not clock_us then
    local time = redis.call('TIME')
    clock_us = time[1] * 1000000 + time[2]
  end
  return clock_us
end
local function now_ms() return math.floor(now_us() / 1000) end
local function text(number) return string.format('%.0f', number) end

local function next_number()
  local number = text(math.max(tonumber(redis.call('GET', COUNTER) or '0') + 1, now_us()))
  redis.call('SET', COUNTER, number)
  return number
end

-- Returns owner and fence of a lock value of ours, nothing for any other text.
local function holder_of(value)
  local owner, fence = string.match(value, '^(%x+)|pl1|%d+|(%d+)|')
  return owner, fence
end

-- Changes with every restart and every promotion. Read here, in the step that grants: what a client
-- remembers of it may be from before. Returns also whether this server was a replica before.
local function epoch()
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  local replication = redis.call('INFO', 'replication')
  local history = string.match(replication, 'master_replid:(%x+)')
  return run .. ':' .. history, string.find(replication, 'master_replid2:0*[1-9a-f]') ~= nil
end

-- After a restart, a promotion or a loss of data (a new epoch) nothing is granted until every lease
-- from before has ended. The master before a promotion may have extended leases until it noticed that it
-- was cut off, so then it takes longer by that. Returns how many ms are left; 0 when grants are allowed.
local function withheld_ms()
  if not STRICT then return 0 end
  local now_is, promoted = epoch()
  local gate = redis.call('GET', GATE)
  if gate == now_is .. '|open' then return 0 end
  local until_ms = gate and string.match(gate, '^' .. now_is .. '|(%d+)$')
  if not until_ms then
    local length = LONGEST + (promoted and LAG or 0)
    redis.call('SET', GATE, now_is .. '|' .. text(now_ms() + length))
    return length
  end
  local left = tonumber(until_ms) - now_ms()
  if left > 0 then return left end
  redis.call('SET', GATE, now_is .. '|open')
  return 0
end

-- Drops silent waiters from the front; returns the first live one, nil if nobody is left, and false if
-- nobody knows whether the next one lives, because one step drops only so many.
local function live_head()
  for _ = 1, REAPED do
    local first = redis.call('ZRANGE', LINE, 0, 0)[1]
    if not first then return nil end
    local silent_at = redis.call('ZSCORE', LIFE, first)
    if silent_at and tonumber(silent_at) > now_ms() then return first end
    redis.call('ZREM', LINE, first)
    redis.call('ZREM', LIFE, first)
  end
  if redis.call('EXISTS', LINE) == 0 then return nil end
  return false
end

-- A name has one kind as long as anybody holds or waits: whoever wants another is told.
-- mode = m (mutex), r (read), w (write), pCOUNT/CAPACITY (permits of a semaphore)
local function kind_of(mode) return mode == 'm' and mode or string.match(mode, '/%d+$') or 'rw' end

-- In which way somebody shares this name, if anybody does.
local function shared_mode()
  local holder = redis.call('ZRANGEBYSCORE', HOLDERS, '(' .. text(now_ms()), '+inf', 'LIMIT', 0, 1)[1]
  return holder and string.match(holder, '|([^|]+)$')
end

-- In which way the first in line wants it, if anybody waits.
local function wanted_mode(head)
  local front = head or redis.call('ZRANGE', LINE, 0, 0)[1]
  return front and string.match(front, '|%d|([^|]+)|')
end

-- waiter = owner|client|first lease ms|lease ms|1 or 2 if it listens|mode|label
-- Whoever listens hears messages at the inbox of its client (1). In a cluster those reach nodes whose listeners
-- are not counted here, so there it listens in the slot of the lock (2), at the node that runs this.
local function channel_of(listens, client)
  if listens == '2' then return string.sub(COUNTER, 1, -6) .. 'inbox:' .. client end
  return INBOX .. client
end

-- Whether it is known before a grant that no message will reach this waiter. Where that can be asked it is,
-- because a message about a grant that was taken back again may still be heard at a replica.
local function is_away(waiter)
  local client, listens = string.match(waiter, '^%x+|([^|]*)|%d+|%d+|(%d)|')
  if listens ~= '2' then return false end
  local count = redis.pcall('PUBSUB', 'SHARDNUMSUB', channel_of(listens, client))
  return count[2] == 0
end

-- Returns whether somebody may have heard it. A refusal (a table) says nothing about the waiter, which will
-- find out by its poll.
local function tell(listens, client, message)
  if listens ~= '1' and listens ~= '2' then return true end
  local verb = listens == '2' and 'SPUBLISH' or 'PUBLISH'
  local heard = redis.pcall(verb, channel_of(listens, client), message)
  return listens == '2' or type(heard) == 'table' or heard > 0
end

local function hold(waiter)
  local owner, client, first, lease, listens, label =
    string.match(waiter, '^(%x+)|([^|]*)|(%d+)|(%d+)|(%d)|m|([^|]*)$')
  local fence = next_number()
  local value = owner .. '|pl1|00000000|' .. fence .. '|' .. text(now_ms()) .. '|' .. first .. '|'
    .. lease .. '|' .. client .. '|' .. label
  redis.call('SET', LOCK, value, 'PX', first)
  return fence, owner, client, listens
end

-- Pre: the lock key is absent. Post: it names a live waiter, or nobody live waits, or grants are
-- withheld. A waiter that listens but whom no message reached is probably gone: the next one gets
-- it, and it keeps its place in case it lives. If nobody is reached, the first one gets it.
local function grant_next()
  local head = live_head()
  if not head or withheld_ms() > 0 then return nil end
  local candidates = redis.call('ZRANGE', LINE, 0, UNHEARD - 1)
  for at, waiter in ipairs(candidates) do
    local silent_at = redis.call('ZSCORE', LIFE, waiter)
    if silent_at and tonumber(silent_at) > now_ms() and not is_away(waiter) then
      -- The lock is set before the push leaves: a push must never speak of a grant that failed.
      local fence, owner, client, listens = hold(waiter)
      if tell(listens, client, 'granted|' .. owner .. '|' .. fence) then
        redis.call('ZREM', LINE, waiter)
        redis.call('ZREM', LIFE, waiter)
        live_head()
        return client
      end
      redis.call('DEL', LOCK)
    end
  end
  redis.call('ZREM', LINE, head)
  redis.call('ZREM', LIFE, head)
  local _, _, client = hold(head)
  live_head()
  return client
end

-- After a lock became free for good, nothing needs to be listed under its name.
local function unlist_if_free(next_client)
  if not next_client and redis.call('EXISTS', LINE, LOCK, HOLDERS or LINE) == 0 then
    redis.call('ZREM', INDEX, NAME)
  end
end
