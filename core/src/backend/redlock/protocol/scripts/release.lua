-- Frees this node's lock if it is the owner's, and leaves the crowd.
-- Invariant: deletes before anything else, which works on a server whose memory is full.
-- ARGV: 5 waiter record of this owner, empty if it never waited
-- Answers 1 released, 0 there was none, -1 somebody else's
local value = redis.call('GET', KEYS[1])
local mine = value and string.match(value, '^(%x+)|pl1|') == ARGV[1]
if mine then redis.call('DEL', KEYS[1]) end
local my_turn = false
-- Most of those who may wait never stood here.
if ARGV[5] ~= '' and redis.call('EXISTS', KEYS[2], KEYS[5]) > 0 then
  redis.call('ZREM', KEYS[2], ARGV[5])
  redis.call('ZREM', KEYS[3], ARGV[5])
  my_turn = redis.call('GET', KEYS[5]) == ARGV[1]
  if my_turn then redis.call('DEL', KEYS[5]) end
end
if mine or (my_turn and not value) then
  if redis.call('EXISTS', KEYS[2]) == 1 then tell_next() else redis.call('ZREM', KEYS[4], ARGV[3]) end
end
return mine and 1 or (value and -1 or 0)
