-- What the queue keeps between scripts, in the hash state:
--   seq      the last sequence given to a place or a token
--   seen     server ms last seen, to notice a clock that steps back
--   alarm    server ms at which some process has set a timer to claim again
--   held     server ms until which some bucket may be held for a job
--   largest  size of the largest record ever enqueued: how many records one MGET may read

-- Returns the state, or nil with the field and the value that are wrong.
local function read_state(state)
  local s, fields = {}, {'seq', 'seen', 'alarm', 'largest', 'held'}
  for i, value in ipairs(call('HMGET', state, unpack(fields))) do
    s[fields[i]] = whole(value or '0')
    if not s[fields[i]] then return nil, fields[i] .. '=' .. value end
  end
  -- Records and tokens have room for 48 bits of sequence; half of that range is never reached.
  if s.seq >= 140737488355328 then return nil, 'seq=' .. text(s.seq) end
  return s
end

-- Is a process going to claim by itself between now and at?
local function alarmed(s, now, at)
  return s.alarm > now and s.alarm <= at
end
