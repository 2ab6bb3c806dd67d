-- Reads a page of the client records, and with the first one the audit. Changes nothing. What cannot be read, because
-- another version wrote it, is counted and hides nothing else: its keys come behind the audit. Then comes why a write
-- would be refused, and last where the next page begins: pages follow the scores, because a record that is announced
-- again moves to the end, and by rank the one behind it would be missed.
-- KEYS: 1 clients, 2 audit list
-- ARGV: 1 client record key prefix, 2 least score of the page, 3 how many of that score were read, 4 records in a page,
--       5 entries of the audit; nothing but clients if it is empty
local time = redis.call('TIME')
local clients, unreadable = {}, {}
local function of_another_type(answer) return answer.err and string.find(answer.err, 'WRONGTYPE', 1, true) end
local page =
  redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', ARGV[3], ARGV[4])
for at = 1, #page, 2 do
  local id = page[at]
  local record = redis.pcall('HGETALL', ARGV[1] .. id)
  if record.err and not of_another_type(record) then redis.call('HGETALL', ARGV[1] .. id) end
  if record.err then
    unreadable[#unreadable + 1] = ARGV[1] .. id
  elseif #record > 0 then
    clients[#clients + 1] = {id, record}
  end
end
local following = {}
if #page == 2 * tonumber(ARGV[4]) then
  local last, same = page[#page], 0
  for at = 2, #page, 2 do
    if page[at] == last then same = same + 1 end
  end
  following = {last, last == ARGV[2] and ARGV[3] + same or same}
end
local now = string.format('%.0f', time[1] * 1000000 + time[2])
if ARGV[5] == '' then return {now, clients, {}, unreadable, '', following} end
local audit = {}
local entries = redis.pcall('LRANGE', KEYS[2], 0, ARGV[5] - 1)
if entries.err and not of_another_type(entries) then redis.call('LRANGE', KEYS[2], 0, ARGV[5] - 1) end
if entries.err then entries = {''} end
for _, entry in ipairs(entries) do
  local read, broken = pcall(cjson.decode, entry)
  if read and type(broken) == 'table' then
    local fields = {string.format('%.0f', tonumber(broken.at_ms) or 0)}
    for _, field in ipairs({'name', 'fencing_token', 'holder', 'by', 'reason'}) do
      fields[#fields + 1] = tostring(broken[field] or '')
    end
    audit[#audit + 1] = fields
  else
    unreadable[#unreadable + 1] = KEYS[2]
  end
end
-- A write without an effect, whatever stands there: XX adds nothing, and no client has the id ''. Only asked for where
-- that is permitted, since a missing permission says nothing about the server and would stand in its log.
local refused = ''
if not redis.acl_check_cmd or redis.acl_check_cmd('ZADD', KEYS[1], 'XX', '0', '') then
  local answer = redis.pcall('ZADD', KEYS[1], 'XX', '0', '')
  refused = type(answer) == 'table' and answer.err or ''
end
return {now, clients, audit, unreadable, refused, following}
