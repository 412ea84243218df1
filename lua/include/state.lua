-- What the queue keeps between scripts, in the hash state:
--   seq      the last sequence given to a place or a token
--   seen     server ms last seen, to notice a clock that steps back
--   alarm    server ms at which some process has set a timer to claim again
--   largest  size of the largest record ever enqueued: how many records one MGET may read

local function read_state(state)
  local v = call('HMGET', state, 'seq', 'seen', 'alarm', 'largest')
  local s = {seq = whole(v[1] or '0'), seen = whole(v[2] or '0'), alarm = whole(v[3] or '0'), largest = whole(v[4] or '1')}
  -- Records and tokens have room for 48 bits of sequence; half of that range is never reached.
  if s.seq and s.seq < 140737488355328 and s.seen and s.alarm and s.largest then return s end
end

-- Is a process going to claim by itself between now and at?
local function alarmed(s, now, at)
  return s.alarm > now and s.alarm <= at
end
