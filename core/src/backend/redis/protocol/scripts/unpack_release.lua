-- The arguments of release_direct as those of every script that can grant, and of release.
-- ARGV[3], with a space between: inbox channel prefix, longest lease ms, s under guarantee=strict or -,
-- name in the index
local ARGV = ARGV
do
  local inbox, longest, strict, name = string.match(ARGV[3], '^(%S+) (%d+) (.) (.*)$')
  ARGV = {inbox, name, strict == 's' and 's' or '', longest, ARGV[1], string.sub(ARGV[2], 2, -2)}
end
