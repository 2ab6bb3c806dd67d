-- Ends one lease that its holder did not release: `shared` is its member of the holders, nil for a mutex.
-- Records that, notifies its client and returns the client. KEYS: 9 audit list
local function broken(shared, owner, fence, value, name, by, reason, audit_length)
  local client = string.match(value, '%x+|pl1|%d+|%d+|%d+|%d+|%d+|([^|]*)|') or ''
  -- Makes room, and fails here if something else stands there.
  redis.call('LTRIM', KEYS[9], 0, tonumber(audit_length) - 2)
  if shared then give_up(shared) else redis.call('DEL', LOCK) end
  redis.call('LPUSH', KEYS[9], cjson.encode({
    v = 1, at_ms = now_ms(), name = name, fencing_token = fence, holder = client, by = by, reason = reason,
  }))
  -- Where its client listens, if it does, does not stand in the lock.
  tell('1', client, 'revoked|' .. owner .. '|' .. fence)
  if string.find(COUNTER, '{', 1, true) then tell('2', client, 'revoked|' .. owner .. '|' .. fence) end
  return client
end
