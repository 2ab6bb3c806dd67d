-- Surrounds a script: the last argument is the time in µs, and a lock ends by that time. The script
-- under test and show.lua are pasted in; both see this clock, and nothing is published.
local NOW_US = tonumber(table.remove(ARGV))
local NOW_MS = math.floor(NOW_US / 1000)
local real, pushes = redis, {}
local function is_lock(key) return string.sub(key, -5) == ':lock' end
local function is_shared(key) return string.find(key, ':holders$') or string.find(key, ':details$') end
local function ends(key)
  local at = is_lock(key) and real.call('GET', key .. '#ends')
  if at and tonumber(at) <= NOW_MS then
    real.call('DEL', key, key .. '#ends')
    at = nil
  end
  return at
end
local own = {}
function own.TIME()
  return {string.format('%d', math.floor(NOW_US / 1000000)), string.format('%d', NOW_US % 1000000)}
end
function own.PUBLISH(channel, message)
  pushes[#pushes + 1] = channel .. ' ' .. message
  return 1
end
function own.GET(key)
  ends(key)
  return real.call('GET', key)
end
function own.EXISTS(...)
  for _, key in ipairs({...}) do ends(key) end
  return real.call('EXISTS', ...)
end
function own.TYPE(key)
  ends(key)
  return real.call('TYPE', key)
end
function own.MGET(first, ...)
  ends(first)
  return real.call('MGET', first, ...)
end
function own.SET(key, value, ...)
  if is_lock(key) then
    local options = {...}
    if options[1] == 'NX' then
      if own.GET(key) then return false end
      table.remove(options, 1)
    end
    assert(options[1] == 'PX', 'a lock without an end')
    real.call('SET', key .. '#ends', NOW_MS + options[2])
  end
  return real.call('SET', key, value)
end
function own.DEL(key) return real.call('DEL', key, key .. '#ends') end
function own.PTTL(key)
  local at = ends(key)
  return at and at - NOW_MS or real.call('PTTL', key)
end
function own.PEXPIRE(key, ms, only)
  -- Leases that are shared end by their scores; their keys only follow, by another clock here.
  if is_shared(key) then return 1 end
  if not is_lock(key) then return real.call('PEXPIRE', key, ms) end
  if only == 'GT' and own.PTTL(key) >= tonumber(ms) then return 0 end
  return real.call('SET', key .. '#ends', NOW_MS + ms)
end
local redis = {}
function redis.call(command, ...)
  if own[command] then return own[command](...) end
  return real.call(command, ...)
end
redis.pcall = redis.call
local function show(KEYS, ARGV)
--[[show]]
end
local function step()
--[[step]]
end
local answer, shown = step(), {}
for _, key in ipairs(KEYS) do
  -- A renewal of shared leases names no lock.
  local base = string.match(key, '^(.*):lock$') or not is_lock(KEYS[1]) and string.match(key, '^(.*):holders$')
  if base then
    local keys = {base .. ':lock', base .. ':line', base .. ':life', base .. ':holders', base .. ':details',
      base .. ':until'}
    shown[#shown + 1] = show(keys, {'1000'})
  end
end
local listed = {}
-- A renewal names locks without their lines.
local has_line = #KEYS >= 3 and string.match(KEYS[2], ':line$')
for _, key in ipairs(has_line and KEYS or {}) do
  local name = string.match(key, '^pl:{(.*)}:lock$')
  if name then listed[#listed + 1] = real.call('ZSCORE', 'pl:locks', name) and 1 or 0 end
end
return {answer, pushes, shown, listed}
