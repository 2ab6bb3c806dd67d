-- The number after the last one given out. From 2^53 on, numbers of a script would repeat.
local function number_after(last)
  if (tonumber(last) or 2^53) < 2^53 - 1 then return string.format('%.0f', last + 1) end
  error('polylatch: the counter of fencing tokens is used up or holds other data')
end
