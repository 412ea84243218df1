-- What the queue keeps between scripts, in the hash state:
--   seq      the last sequence given to a place or a token
--   seen     server ms last seen, to notice a clock that steps back
--   held     server ms until which some bucket may be held for a job
--   largest  size of the largest record ever enqueued: how many records one MGET may read
--   want     server ms since when work waits that no claim has answered for; 0 for none
--   alarm    server ms at which the process in holder claims by itself; 0 for none
--   holder, deputy, deputy_till, net   who watches over the queue, see watch.lua

-- Returns the state, or nil with the field and the value that are wrong.
local function read_state(state)
  local s, fields = {}, {'holder', 'deputy', 'seq', 'seen', 'held', 'largest', 'want', 'alarm', 'deputy_till', 'net'}
  for i, value in ipairs(call('HMGET', state, unpack(fields))) do
    if i <= 2 then
      s[fields[i]] = value or ''
    else
      s[fields[i]] = whole(value or '0')
      if not s[fields[i]] then return nil, fields[i] .. '=' .. value end
    end
  end
  -- Records and tokens have room for 48 bits of sequence; half of that range is never reached.
  if s.seq >= 140737488355328 then return nil, 'seq=' .. text(s.seq) end
  return s
end

-- Is a process going to claim by itself between now and at?
local function alarmed(s, now, at)
  return s.alarm > now and s.alarm <= at
end
