-- The keys of every script that can grant, of which the usual cases need three: lock, line, counter.
local KEYS = KEYS
do
  local of_name, of_prefix = string.sub(KEYS[2], 1, -5), string.sub(KEYS[3], 1, -6)
  KEYS = {
    KEYS[1], KEYS[2], of_name .. 'life', KEYS[3], of_prefix .. 'locks', of_prefix .. 'epoch', of_name .. 'holders',
  }
end
