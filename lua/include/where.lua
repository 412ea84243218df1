-- Where a job is. Sets are asked first; else the job waits in its priority's list, or is active. The lists are in order of
-- place and are taken from the head, so a job whose place lies before the head of its list has been handed out.

-- Returns the state and, for delayed, dead and completed jobs, the time that goes with it. place is nil where there is no
-- record. Kept results end by their own TTL and stay listed as completed a while longer.
local function where(id, place, now)
  local at = call('ZSCORE', delayed, id)
  if at then return 'delayed', tonumber(at) end
  at = call('ZSCORE', dead, id)
  if at then return 'dead', tonumber(at) end
  at = call('ZSCORE', completed, id)
  if at and tonumber(at) >= now then return 'completed', tonumber(at) end
  if call('ZSCORE', back, id) then return 'wait', 0 end
  if not place then return 'unknown', 0 end
  local list = prefix .. 'wait:' .. math.floor(place / 1125899906842624)
  local first = call('LINDEX', list, '0')
  if not first then return 'active', 0 end
  local first_place = place_of(call('GETRANGE', job_key(first), '0', tostring(HEAD - 1)))
  if first_place then return place < first_place and 'active' or 'wait', 0 end
  return call('LPOS', list, id) and 'wait' or 'active', 0
end
