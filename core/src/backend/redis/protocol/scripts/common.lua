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
local REAPED, LOOKED = 1000, 5000
-- How many records of other versions are passed over.
local PASSED = 1000
-- How long a cut-off master may go on after its replicas fell silent: Redis' own min-replicas-max-lag of
-- 10 s, and the two seconds by which it is late, because it counts whole seconds and looks once a second.
local LAG = 12000

-- Where the user shares lock keys with other libraries, the key of what is known of these: how long ours hand
-- the lock on among themselves after a pause for the others, when the next pause is due, and the end of the
-- present one, all in ms. nil where only Polylatch uses the key.
local function others_key()
  local of_name = string.sub(LINE, 1, -5)
  return LOCK ~= of_name .. 'lock' and of_name .. 'others' or nil
end

-- The value of the lock; some text in place of a hash, which is another library's lock where keys are shared.
local function lock_value()
  local value = redis.pcall('GET', LOCK)
  if type(value) ~= 'table' then return value end
  if others_key() and redis.call('TYPE', LOCK).ok == 'hash' then return '?' end
  return redis.call('GET', LOCK)
end

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

-- The deadlines of waiters (zset number in the queue|ms -> that number).
local function deadlines_key() return string.sub(LINE, 1, -5) .. 'until' end

-- Takes a waiter that gives up out of the queue. Returns whether it was there.
local function give_up_place(waiter)
  local ticket = redis.call('ZSCORE', LINE, waiter)
  redis.call('ZREM', LIFE, waiter)
  if not ticket then return false end
  redis.pcall('ZREMRANGEBYSCORE', deadlines_key(), ticket, ticket)
  return redis.call('ZREM', LINE, waiter) == 1
end

local function next_number()
  local number = text(math.max(number_after(redis.call('GET', COUNTER) or '0'), now_us()))
  redis.call('SET', COUNTER, number)
  return number
end

-- The records of version 1 are known by their form, those of later ones begin with their version (pl2|).
-- Programs of several versions share a store while they are updated, so a record that cannot be read is
-- passed over: it must never be an error.
local function mode_of(code)
  return code and (string.find(code, '^[mrw]$') or string.find(code, '^p%d+/%d+$')) and code or nil
end

-- Returns owner, client, first lease, lease, listens, mode and label; nothing for a record of another version.
local function waiter_of(record)
  local owner, client, first, lease, listens, mode, label =
    string.match(record, '^(%x+)|([^|]*)|(%d+)|(%d+)|(%d)|([^|]+)|([^|]*)$')
  if owner and #owner == 32 and mode_of(mode) and #first < 16 and tonumber(first) > 0 then
    return owner, client, first, lease, listens, mode, label
  end
end

-- The mode of one of several holders; nothing for a record of another version.
local function mode_of_holder(member) return mode_of(string.match(member, '^%x+|%d+|([^|]+)$')) end

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
-- from before has ended. The longest lease of any client decides: each stores its own before its first grant,
-- with the epoch and the time since when that epoch is known. The master before a promotion may have extended
-- leases until it noticed that it was cut off, so then it takes longer by that. The gate itself has the form
-- that clients know which do not store theirs. Returns how many ms are left; 0 when grants are allowed.
local function withheld_ms()
  if not STRICT then return 0 end
  local now_is, promoted = epoch()
  local longest_key = string.sub(GATE, 1, -6) .. 'longest'
  local gate, declared = redis.call('GET', GATE) or '', redis.call('GET', longest_key)
  local longest, since, of = string.match(declared or '', '^pl%d+|(%d+)|(%d+)|([^|]*)')
  longest = tonumber(longest) or 0
  local is_open = gate == now_is .. '|open'
  if is_open and of == now_is and longest >= LONGEST then return 0 end
  local until_ms = tonumber(string.match(gate, '^' .. now_is .. '|(%d+)$'))
  if of ~= now_is or not (is_open or until_ms) then
    -- Opened by a client that stores nothing, and no other has been here: it closed it long enough for itself.
    since = is_open and not declared and '0' or text(now_ms())
  end
  if of ~= now_is or longest < LONGEST or since ~= string.match(declared, '^pl%d+|%d+|(%d+)') then
    longest = math.max(longest, LONGEST)
    redis.call('SET', longest_key, 'pl1|' .. text(longest) .. '|' .. since .. '|' .. now_is)
  end
  local ends = math.max(until_ms or 0, since + longest + (promoted and LAG or 0))
  if ends > now_ms() then
    if ends ~= until_ms then redis.call('SET', GATE, now_is .. '|' .. text(ends)) end
    return ends - now_ms()
  end
  if not is_open then redis.call('SET', GATE, now_is .. '|open') end
  return 0
end

-- Until when a waiter counts as alive, if it still does. Half a millisecond in it says that the waiter did
-- not hear its inbox when it polled last.
local function live_until(waiter)
  local silent_at = tonumber(redis.call('ZSCORE', LIFE, waiter))
  return silent_at and silent_at > now_ms() and silent_at
end

-- Whether the latest step could not drop all silent waiters from the front.
local unswept = false

-- Drops silent waiters from the front, so many at most; returns the first live one, nil if the queue is empty,
-- and false if the next one is silent, too.
local function live_head()
  unswept = false
  local first = redis.call('ZRANGE', LINE, 0, 0)[1]
  if not first or live_until(first) then return first end
  local front, silent = redis.call('ZRANGE', LINE, 0, REAPED), 1
  while silent < REAPED and front[silent + 1] and not live_until(front[silent + 1]) do silent = silent + 1 end
  redis.call('ZREM', LINE, unpack(front, 1, silent))
  redis.call('ZREM', LIFE, unpack(front, 1, silent))
  local head = front[silent + 1]
  unswept = head and not live_until(head)
  return not unswept and head
end

-- The first live waiter whose record can be read. One that cannot keeps its place until it expires: its own
-- version serves it.
local live_front = live_head
live_head = function()
  local front = live_front()
  if not front or waiter_of(front) then return front end
  for _, waiter in ipairs(redis.call('ZRANGE', LINE, 0, PASSED)) do
    if waiter_of(waiter) and live_until(waiter) then return waiter end
  end
  return nil
end

-- A name has one kind as long as anybody holds or waits: whoever wants another is told.
-- mode = m (mutex), r (read), w (write), pCOUNT/CAPACITY (permits of a semaphore)
local function kind_of(mode) return mode == 'm' and mode or string.match(mode, '/%d+$') or 'rw' end

-- In which mode this name is shared, if it is. Then whether it is, but in modes of another version only,
-- which exclude all others.
local function shared_mode()
  local live = '(' .. text(now_ms())
  local holder = redis.call('ZRANGEBYSCORE', HOLDERS, live, '+inf', 'LIMIT', 0, 1)[1]
  if not holder then return nil end
  local mode = mode_of_holder(holder)
  if mode then return mode end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', HOLDERS, live, '+inf', 'LIMIT', 0, PASSED)) do
    mode = mode_of_holder(member)
    if mode then return mode end
  end
  return nil, true
end

-- In which way the first in line wants it, if anybody waits.
local function wanted_mode(head)
  local front = head or redis.call('ZRANGE', LINE, 0, 0)[1]
  if not front then return nil end
  local _, _, _, _, _, mode = waiter_of(front)
  return mode
end

-- waiter = owner|client|first lease ms|lease ms|1 or 2 if it listens|mode|label
-- Whoever listens hears messages at the inbox of its client (1). In a cluster those reach nodes whose listeners
-- are not counted here, so there it listens in the slot of the lock (2), at the node that runs this.
local function channel_of(listens, client)
  if listens == '2' then return string.sub(COUNTER, 1, -6) .. 'inbox:' .. client end
  return INBOX .. client
end

-- The inboxes that nobody hears: all waiters of one client have the same.
local deaf = {}

-- Whether it is known before a grant that no message will reach this waiter. Where that can be asked it is,
-- because a message about a grant that was taken back again may still be heard at a replica.
local function is_away(waiter)
  local client, listens = string.match(waiter, '^%x+|([^|]*)|%d+|%d+|(%d)|')
  local channel = channel_of(listens, client)
  if listens == '2' and deaf[channel] == nil then
    deaf[channel] = redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)[2] == 0
  end
  return listens ~= '0' and deaf[channel]
end

-- Returns whether somebody may have heard it. A refusal (a table) says nothing about the waiter, which will
-- find out by its poll.
local function tell(listens, client, message)
  if listens ~= '1' and listens ~= '2' then return true end
  local verb, channel = listens == '2' and 'SPUBLISH' or 'PUBLISH', channel_of(listens, client)
  local heard = redis.pcall(verb, channel, message)
  deaf[channel] = listens == '1' and heard == 0
  return not deaf[channel]
end

local function hold(waiter)
  local owner, client, first, lease, listens, _, label = waiter_of(waiter)
  local fence = next_number()
  local value = owner .. '|pl1|00000000|' .. fence .. '|' .. text(now_ms()) .. '|' .. first .. '|'
    .. lease .. '|' .. client .. '|' .. label
  redis.call('SET', LOCK, value, 'PX', first)
  return fence, owner, client, listens
end

-- Pre: the lock key is absent. Post: it names a live waiter, or nobody live waits, or grants are
-- withheld. A waiter that listens but whom no message reached is probably gone: the next one gets
-- it, and it keeps its place in case it lives. One that said by its poll that it does not hear gets it in
-- its turn, and finds out by the next. If nobody is reached, the first one gets it.
local function grant_next()
  local head = live_head()
  if not head or wanted_mode(head) ~= 'm' or withheld_ms() > 0 then return nil end
  -- Nearly always the first one hears.
  local looked, size, page = 0, 4, nil
  repeat
    page = redis.call('ZRANGE', LINE, looked, looked + size - 1)
    for _, waiter in ipairs(page) do
      local silent_at = live_until(waiter)
      local finds_out = silent_at and silent_at % 1 > 0
      if silent_at and wanted_mode(waiter) == 'm' and (finds_out or not is_away(waiter)) then
        -- The lock is set before the push leaves: a push must never speak of a grant that failed.
        local fence, owner, client, listens = hold(waiter)
        if tell(listens, client, 'granted|' .. owner .. '|' .. fence) or finds_out then
          redis.call('ZREM', LINE, waiter)
          redis.call('ZREM', LIFE, waiter)
          live_head()
          return client
        end
        redis.call('DEL', LOCK)
      end
    end
    looked, size = looked + #page, #page == size and 500 or 0
  until size == 0 or looked >= LOOKED
  redis.call('ZREM', LINE, head)
  redis.call('ZREM', LIFE, head)
  local _, _, client = hold(head)
  live_head()
  return client
end

-- How long a lease of ours can last. A server clock that stepped back must not keep it for longer.
local function longest_of(value)
  local first, lease = string.match(value, '|pl1|%d+|%d+|%d+|(%d+)|(%d+)|')
  return first and math.min(LONGEST, math.max(tonumber(first), tonumber(lease))) or LONGEST
end

-- After a lock became free for good, nothing needs to be listed under its name.
local function unlist_if_free(next_client)
  if not next_client and redis.call('EXISTS', LINE, LOCK, HOLDERS or LINE) == 0 then
    redis.call('ZREM', INDEX, NAME)
  end
end
