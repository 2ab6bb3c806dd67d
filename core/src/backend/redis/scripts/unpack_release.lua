-- The arguments of release_direct as those of every script that can grant, and of release.
-- ARGV[4], with a space between: inbox channel prefix, longest lease ms, s under guarantee=strict or -
local ARGV = ARGV
do
  local inbox, longest, strict = string.match(ARGV[4], '^(%S+) (%d+) (.)$')
  ARGV = {inbox, ARGV[3], strict == 's' and 's' or '', longest, ARGV[1], string.sub(ARGV[2], 2, -2)}
end
