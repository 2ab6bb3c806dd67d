-- The arguments of poll_free as those of every script that can grant, and of poll.
-- ARGV[6]: inbox channel prefix, longest lease ms, 1 to stand in line, 1 to barge, near heartbeat ms,
-- far heartbeat ms, how many positions count as near, 1 if it listens; with a space between.
local ARGV = ARGV
do
  local inbox, longest, waits, barge, near, far, count, listens =
    string.match(ARGV[6], '^(%S+) (%d+) (%d) (%d) (%d+) (%d+) (%d+) (%d)$')
  local lease, client, label = string.match(ARGV[2], '^|%d+|(%d+)|([^|]*)|([^|]*)$')
  local waiter = ARGV[1] .. '|' .. client .. '|' .. ARGV[3] .. '|' .. lease .. '|' .. listens .. '|m|' .. label
  ARGV = {inbox, ARGV[5], ARGV[4], longest, ARGV[1], waiter, ARGV[3], waits, barge, near, far, count}
end
