-- The arguments of poll_free as those of every script that can grant, and of poll.
-- ARGV[4], with a space between: inbox channel prefix, longest lease ms, s under guarantee=strict or -,
-- 1 to stand in line, 1 to barge, near heartbeat ms, far heartbeat ms (each with .5 if it does not hear now),
-- how many positions count as near, ms after which it gives up or - if it does not,
-- 1 if it listens, name in the index
local ARGV = ARGV
do
  local inbox, longest, strict, waits, barge, near, far, count, left, listens, name =
    string.match(ARGV[4], '^(%S+) (%d+) (.) (%d) (%d) (%S+) (%S+) (%d+) (%S+) (%d) (.*)$')
  local lease, client, label = string.match(ARGV[2], '^|%d+|(%d+)|([^|]*)|([^|]*)$')
  local waiter = ARGV[1] .. '|' .. client .. '|' .. ARGV[3] .. '|' .. lease .. '|' .. listens .. '|m|' .. label
  ARGV = {
    inbox, name, strict == 's' and 's' or '', longest, ARGV[1], waiter, ARGV[3], waits, barge, near, far, count,
    left, ARGV[5],
  }
end
