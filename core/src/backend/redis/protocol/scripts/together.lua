-- Many releases and polls of mutexes, with the outcome that they have one by one, the releases first.
-- The usual ones (nobody in line, the lock free) share the commands that can take many keys; the others
-- run the scripts of their own. One that meets an error does not stop the others: it is answered with
-- false, and asks again by itself.
-- KEYS: 1 counter, then lock and line of each. ARGV: 1 how many of them are releases, then the three
-- arguments of each release, then the four of each poll; none is to be listed now
local call, find, format = redis.call, string.find, string.format
local counter, given, all = KEYS[1], tonumber(ARGV[1]), (#KEYS - 1) / 2
local answers, rest = {}, {}

-- The first of the arguments of a release is at 3 * item - 1, of a poll at 4 * item - polls_before.
local polls_before = given + 2

-- All in the usual way, then those for which it is none: all that are left if it met an error. Of the
-- releases that is every one, because the command that frees them is the last.
local function run(script, usual, first, last)
  rest = {}
  if not pcall(usual) then
    rest = {}
    for item = first, last do
      if script == release or not answers[item] then rest[#rest + 1] = item end
    end
  end
  for _, item in ipairs(rest) do
    local from, to = 4 * item - polls_before, 4 * item - polls_before + 3
    if script == release then from, to = 3 * item - 1, 3 * item + 1 end
    local done, answer = pcall(script, {KEYS[2 * item], KEYS[2 * item + 1], counter}, {unpack(ARGV, from, to)})
    answers[item] = done and answer
  end
end

-- Those that only have to delete a lock that nobody waits for and that the index does not list.
local function release_usual()
  local locks, lines = {}, {}
  for item = 1, given do locks[item], lines[item] = KEYS[2 * item], KEYS[2 * item + 1] end
  local values, unwaited = call('MGET', unpack(locks)), call('EXISTS', unpack(lines)) == 0
  local freed = {}
  for item = 1, given do
    local value, arg = values[item], 3 * item - 1
    if unwaited and value and find(value, ARGV[arg], 1, true) == 1
      and find(value, '|00000000' .. ARGV[arg + 1], 37, true) == 37 then
      freed[#freed + 1] = locks[item]
      answers[item] = 1
    else
      answers[item] = false
      rest[#rest + 1] = item
    end
  end
  if freed[1] then call('DEL', unpack(freed)) end
end

-- Those of a lock that is free, unshared and without a line.
local function poll_usual()
  local keys = {}
  for item = given + 1, all do
    local line = KEYS[2 * item + 1]
    keys[#keys + 1] = line
    keys[#keys + 1] = string.sub(line, 1, -5) .. 'holders'
    answers[item] = false
  end
  if call('EXISTS', unpack(keys)) > 0 then error() end
  local last, time = call('GET', counter), call('TIME')
  local fence = time[1] .. string.sub('00000' .. time[2], -6)
  local acquired = '|' .. string.sub(fence, 1, -4)
  fence = math.max(tonumber(fence), tonumber(last or 0) + 1)
  -- Each alone says what is wrong.
  if fence + all > 2^53 then error() end
  -- Before any of them is used.
  call('SET', counter, format('%.0f', fence + all - given - 1))
  for item = given + 1, all do
    local arg, number = 4 * item - polls_before, format('%.0f', fence)
    local value = ARGV[arg] .. '|pl1|00000000|' .. number .. acquired .. ARGV[arg + 1]
    if call('SET', KEYS[2 * item], value, 'NX', 'PX', ARGV[arg + 2]) then
      answers[item] = number
      fence = fence + 1
    else
      rest[#rest + 1] = item
    end
  end
end

if given > 0 then run(release, release_usual, 1, given) end
if given < all then run(poll, poll_usual, given + 1, all) end
return answers
