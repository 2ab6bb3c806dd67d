-- Reads the client records and the audit. Changes nothing.
-- KEYS: 1 clients, 2 audit list. ARGV: 1 client record key prefix
local time = redis.call('TIME')
local clients = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, 9999)) do
  local record = redis.call('HGETALL', ARGV[1] .. id)
  if #record > 0 then clients[#clients + 1] = {id, record} end
end
return {string.format('%.0f', time[1] * 1000000 + time[2]), clients, redis.call('LRANGE', KEYS[2], 0, -1)}
