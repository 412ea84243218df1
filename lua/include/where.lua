-- Where a job is. Sets are asked first, then the lines of the buckets that it may stand in; else the job waits in its priority's
-- list, or is active. The lists are in order of place and are taken from the head, so a job whose place lies before the head of its
-- list has been handed out.
local line_ids -- of all limits there are and were, and what is closed by key

-- The id of the bucket in whose line a job stands, or nil.
local function line_with(id, record)
  if call('ZCARD', lines) + call('ZCARD', open) + call('ZCARD', stale) == 0 then return nil end
  if not line_ids then
    line_ids = {}
    local stored = call('HGETALL', limits)
    for i = 1, #stored, 2 do
      local limit = limited.parse(stored[i], stored[i + 1])
      if limit and not limited.for_all(limit) then table.insert(line_ids, limit) end
    end
    stored = call('HGETALL', removed)
    for i = 1, #stored, 2 do
      local by = string.match(stored[i + 1], '^%S+ (%S+) ')
      if by then table.insert(line_ids, {bucket = stored[i], by = by ~= '*' and by or nil}) end
    end
  end
  local names = {}
  local keys = headers.read(record, names)
  for _, limit in ipairs(line_ids) do
    local value = limit.by and keys[limit.by]
    if value or not limit.by then
      local bucket = limited.bucket_id(limit, value)
      if call('ZSCORE', prefix .. 'line:' .. bucket, id) then return bucket end
    end
  end
  for _, key in ipairs(names) do
    local bucket = '=' .. key .. ':' .. limited.encoded(keys[key])
    if call('ZSCORE', prefix .. 'line:' .. bucket, id) then return bucket end
  end
end

-- Returns the state, for delayed, dead and completed jobs the time that goes with it, and the bucket in whose line a delayed
-- one stands. Kept results end by their own TTL and stay listed as completed a while longer.
local function where(id, record, now)
  local place = place_of(record)
  local at = call('ZSCORE', delayed, id)
  if at then return 'delayed', tonumber(at) end
  at = call('ZSCORE', dead, id)
  if at then return 'dead', tonumber(at) end
  at = call('ZSCORE', completed, id)
  if at and tonumber(at) >= now then return 'completed', tonumber(at) end
  if call('ZSCORE', back, id) then return 'wait', 0 end
  if not place then return 'unknown', 0 end
  local bucket = line_with(id, record)
  if bucket then return 'delayed', math.max(now, tonumber(call('ZSCORE', lines, bucket) or '0')), bucket end
  local list = prefix .. 'wait:' .. math.floor(place / 1125899906842624)
  local first = call('LINDEX', list, '0')
  if not first then return 'active', 0 end
  local first_place = place_of(head_of(first))
  if first_place then return place < first_place and 'active' or 'wait', 0 end
  return call('LPOS', list, id) and 'wait' or 'active', 0
end
