-- Reads the client records and the audit. Changes nothing.
-- KEYS: 1 clients, 2 audit list. ARGV: 1 client record key prefix
local time = redis.call('TIME')
local clients = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, 9999)) do
  local record = redis.call('HGETALL', ARGV[1] .. id)
  if #record > 0 then clients[#clients + 1] = {id, record} end
end
local audit = {}
for _, entry in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  local read, broken = pcall(cjson.decode, entry)
  if read and type(broken) == 'table' then
    local fields = {string.format('%.0f', tonumber(broken.at_ms) or 0)}
    for _, field in ipairs({'name', 'fencing_token', 'holder', 'by', 'reason'}) do
      fields[#fields + 1] = tostring(broken[field] or '')
    end
    audit[#audit + 1] = fields
  end
end
return {string.format('%.0f', time[1] * 1000000 + time[2]), clients, audit}
