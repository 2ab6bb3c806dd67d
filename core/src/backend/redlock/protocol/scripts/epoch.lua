-- Changes with every restart and every promotion.
local function epoch()
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  local history = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  return run .. ':' .. history
end
