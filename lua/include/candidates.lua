-- The jobs that a claim may hand out, by place: those of the lists, read in chunks from their heads; jobs that come back to a place of
-- their own; and the heads of open lines.
local candidates = lazily(function(candidates)
  -- Puts a job in by its place among those that are not judged yet.
  function candidates.insert(job)
    local c = candidates
    local low, high = c.next, #c.returning + 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      if c.returning[middle][1] <= job[1] then low = middle + 1 else high = middle end
    end
    table.insert(c.returning, low, job)
  end

  -- The head of an open line is one of them.
  function candidates.serve(l)
    local place, id = line.head(l)
    if place then candidates.insert({place, id, 'line', l}) end
  end

  -- Is a job that was the head of an open line still that? An earlier one may have joined, and closed it.
  function candidates.served(job)
    local l = job[4]
    if l.where ~= 'open' then return false end
    local _, id = line.head(l)
    return id == job[2]
  end

  -- A bucket has more to give: its line is judged anew, unless its head is the job that was judged just now.
  function candidates.reopen(b, place, id)
    if not b.line then return end
    local head, head_id = line.head(b.line)
    if head and head_id ~= id then
      if head > place then
        line.open(b.line)
        candidates.serve(b.line)
      end
    end
  end

  function candidates.sort()
    table.sort(candidates.returning, function(a, b) return a[1] < b[1] end)
  end

  -- Reads the lines whose time has come. Returns whether there are more.
  function candidates.read_lines(most)
    local anew = call('ZRANGE', stale, '0', text(most - 1))
    for _, bucket in ipairs(anew) do line.open(line.of(bucket, 'stale')) end
    local awake = call('ZRANGE', lines, '-inf', text(now), 'BYSCORE', 'LIMIT', '0', text(most))
    for _, bucket in ipairs(awake) do line.open(line.of(bucket, 'asleep', now)) end
    candidates.woken = #awake
    local heads = candidates.first(open, most)
    for i = 1, #heads, 2 do line.of(heads[i], 'open') end
    for _, l in ipairs(line.list) do
      if l.where == 'open' then candidates.serve(l) end
    end
    return #anew == most or #awake == most
  end

  -- The place of a job in the lists, false if its record is lost.
  function candidates.place(id, record)
    return candidates.tail_places[id] or place_of(record) or false
  end

  -- The head of a line stays where it is until a time.
  function candidates.stay(job, wake)
    line.sleep(job[4], wake)
    candidates.next = candidates.next + 1
  end
end, {
  returning = {},                -- jobs at a place of their own, in its order: {place, id, from, line}
  tails = {{}, {}, {}, {}},      -- due jobs at the end of the lists, by priority
  tail_places = {},
  bound = math.huge,             -- places beyond it are not judged: not all that may come before them was read
  woken = 0,                     -- lines that were asleep and are judged
  gone = {},                     -- returning jobs that left: not put into back
  from_back = {}, from_sent = {},
  taken = {0, 0, 0, 0},          -- from the head of each list
  tail_taken = {0, 0, 0, 0},
  next = 1,                      -- of returning
  first_of_lists = {0, '', 'list'}, -- one table for them all, since one is looked at at a time
  priority = 1, in_tail = false, ids = {}, records = {}, at = 1, -- the chunk of the lists that was read
})

-- Reads the first members of a set of places; no place after them is judged if there are more.
function candidates.first(set, most)
  local found = call('ZRANGE', set, '0', text(most), 'WITHSCORES')
  if #found > 2 * most then
    table.remove(found)
    candidates.bound = math.min(candidates.bound, tonumber(found[#found - 1]))
    table.remove(found)
  end
  return found
end

function candidates.read_set(set, from, skip, most)
  local found = candidates.first(set, most)
  for i = 1, #found, 2 do
    if not skip[found[i]] then table.insert(candidates.returning, {tonumber(found[i + 1]), found[i], from}) end
  end
end

-- The head of the lists: id and record, or nil. want says how many records are worth reading at once.
function candidates.list_head(want)
  local c = candidates
  while c.at > #c.ids and c.priority <= 4 do
    local list, tail, most = lists[c.priority], c.tails[c.priority], want()
    if c.in_tail then
      c.ids = {}
      local from = c.tail_taken[c.priority]
      for i = from + 1, math.min(#tail, from + most) do table.insert(c.ids, tail[i]) end
    else
      local from = c.taken[c.priority]
      c.ids = call('LRANGE', list, text(from), text(from + most - 1))
    end
    c.at = 1
    if #c.ids > 0 then
      local keys, of_jobs = {}, job_key('')
      for i = 1, #c.ids do keys[i] = of_jobs .. c.ids[i] end
      c.records = call('MGET', unpack(keys))
    elseif c.in_tail then
      c.priority, c.in_tail = c.priority + 1, false
    else
      c.in_tail = true
    end
  end
  return c.ids[c.at], c.records[c.at] or ''
end

-- Does a record look like one at first sight? Whoever runs the job reads it more closely.
function candidates.looks_right(record)
  local first = string.byte(record)
  return first and first >= 49 and first <= 52 and #record > HEAD
end

-- The job with the lowest place: {place, id, from, line, record}, where place is false if its record is lost; nil for none.
-- Those that the limits for all jobs sent back take part while these let any through.
function candidates.head(want, free)
  local c = candidates
  local job = c.returning[c.next]
  while job and (job[3] == 'sent' and free <= 0 or job[3] == 'line' and not candidates.served(job)) do
    c.next = c.next + 1
    job = c.returning[c.next]
  end
  local id, record = c.ids[c.at], c.records[c.at]
  if not (id and record) then id, record = c.list_head(want) end
  local place
  if id and not job and judge.placeless and c.bound == math.huge then
    place = c.looks_right(record) and 0 -- any will do
  elseif id then
    place = c.place(id, record)
  end
  if id and not (job and place and job[1] < place) then
    local first = c.first_of_lists
    first[1], first[2], first[5] = place, id, record
    return first
  end
  if not job then return nil end
  record = read_record(job[2])
  return {place_of(record) and job[1], job[2], job[3], job[4], record}
end

-- The job leaves its place: granted, sent back, dead or lost. A line goes on with its next job.
function candidates.leave(job)
  local c, id, from = candidates, job[2], job[3]
  if from == 'list' then
    c.at = c.at + 1
    local counts = c.in_tail and c.tail_taken or c.taken
    counts[c.priority] = counts[c.priority] + 1
    return
  end
  c.next = c.next + 1
  c.gone[id] = true
  if from == 'back' then
    table.insert(c.from_back, id)
  elseif from == 'sent' then
    table.insert(c.from_sent, id)
  elseif from == 'line' then
    line.leave(job[4], id)
    if job[4].where == 'open' then candidates.serve(job[4]) end
  end
end

function candidates.write()
  local c = candidates
  for priority, list in ipairs(lists) do
    if c.taken[priority] > 0 then call('LTRIM', list, text(c.taken[priority]), '-1') end
    for i = c.tail_taken[priority] + 1, #c.tails[priority] do call('RPUSH', list, c.tails[priority][i]) end
  end
  for _, job in ipairs(c.returning) do
    if not c.gone[job[2]] and (job[3] == 'due' or job[3] == 'ended') then call('ZADD', back, text(job[1]), job[2]) end
  end
  if #c.from_back > 0 then call('ZREM', back, unpack(c.from_back)) end
  if #c.from_sent > 0 then
    call('ZREM', sent, unpack(c.from_sent))
    call('ZREM', delayed, unpack(c.from_sent))
  end
end
