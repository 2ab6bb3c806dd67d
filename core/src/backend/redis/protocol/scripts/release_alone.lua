-- Frees a mutex whose line is out of reach, on its way to another node of a cluster.
-- Invariant: deletes exactly (owner, fence), and nothing else; whoever waits finds the lock free by the next poll.
-- KEYS: 1 lock. ARGV: 1 owner, 2 |fence|
local value = redis.call('GET', KEYS[1])
-- owner (32), |pl1| (5), renewals (8): the fence begins at 46.
if not value or string.find(value, ARGV[1], 1, true) ~= 1 or string.find(value, ARGV[2], 46, true) ~= 46 then
  return 0
end
redis.call('DEL', KEYS[1])
return 1
