-- What the queue keeps between scripts, in the hash state:
--   seq      the last sequence given to a place or a token
--   seen     server ms last seen, to notice a clock that steps back
--   held     server ms until which some bucket may be held for a job
--   largest  size of the largest record ever enqueued: how many records one MGET may read
--   want     server ms since when work waits that no claim has answered for; 0 for none
--   alarm    server ms at which the process in holder claims by itself; 0 for none
--   holder, deputy, deputy_till, net   who watches over the queue, see watch.lua

-- Returns the state, or nil with the field and the value that are wrong. brief is without what claims alone need: who watches, seen and
-- held.
local function read_state(state, brief)
  local v = brief and call('HMGET', state, 'seq', 'largest', 'want', 'alarm') or
    call('HMGET', state, 'seq', 'largest', 'want', 'alarm', 'seen', 'held', 'deputy_till', 'net', 'holder', 'deputy')
  for i = 1, brief and 4 or 8 do
    local n = v[i] and whole(v[i]) or not v[i] and 0
    if not n then
      return nil, ({'seq', 'largest', 'want', 'alarm', 'seen', 'held', 'deputy_till', 'net'})[i] .. '=' .. v[i]
    end
    v[i] = n
  end
  -- Records and tokens have room for 48 bits of sequence; half of that range is never reached.
  if v[1] >= 140737488355328 then return nil, 'seq=' .. text(v[1]) end
  if brief then return {seq = v[1], largest = v[2], want = v[3], alarm = v[4]} end
  return {
    seq = v[1], largest = v[2], want = v[3], alarm = v[4], seen = v[5], held = v[6], deputy_till = v[7], net = v[8],
    holder = v[9] or '', deputy = v[10] or '',
  }
end

-- Is a process going to claim by itself between now and at?
local function alarmed(s, now, at)
  return s.alarm > now and s.alarm <= at
end
