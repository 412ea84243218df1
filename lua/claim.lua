#!lua flags=allow-oom
-- claim brings due jobs and ended leases back, then hands out up to k jobs and spends the queue's budget, in one step.
local meta      = KEYS[1]
local state     = KEYS[2]
local limiter   = KEYS[3]
local wait1     = KEYS[4]
local wait2     = KEYS[5]
local wait3     = KEYS[6]
local wait4     = KEYS[7]
local back      = KEYS[8]
local sent      = KEYS[9]
local delayed   = KEYS[10]
local active    = KEYS[11]
local dead      = KEYS[12]
local errors    = KEYS[13]
local wake      = KEYS[14]
local audit     = KEYS[15]
local nonce     = ARGV[1]
local k         = tonumber(ARGV[2])   -- up to 1000
local lease     = tonumber(ARGV[3])
local reclaims  = tonumber(ARGV[4])
-- include num.lua
-- include settings.lua
-- include ratio.lua
-- include fixed_window.lua
-- include sliding_log.lua
-- include sliding_window_counter.lua
-- include level.lua
-- include token_bucket.lua
-- include leaky_bucket.lua
-- include bucket.lua
-- include record.lua
-- include state.lua
k = math.max(0, math.min(k, 1000))

-- ---- Read: settings, clock, budget ----
local now = clock()
local own, field, value = settings(meta)
if not own then return {'misconfigured', meta, field, value} end
local kept, wrong = read_state(state)
if not kept then return {'corrupt', state, wrong} end
local budget = new_bucket(limiter, own.algorithm, own.max, own.duration, own.burst, '')
local valid, garbage = bucket_read(budget, now)
if not valid then return {'corrupt', limiter, garbage} end
-- include wake.lua
-- include audit.lua
call('ZCARD', dead)
call('HLEN', errors)

local BYTES = 262144            -- no further job is added after this much payload
local steps = 128               -- for what comes back and for what is lost; k more are granted
local seq = kept.seq
local edits = {}                -- {id, field, text}: changes of records, written at the end
local lost = {}                 -- ids whose record the server lost
local poisoned = {}             -- ids whose lease ran out once too often: {id, times}
local returning = {}            -- jobs that come at a place of their own: {place, id, from}
local tails = {{}, {}, {}, {}}  -- due jobs at the end of the line, by priority
local tail_places = {}
local lists = {wait1, wait2, wait3, wait4}

-- ---- Read: a clock that stepped back cuts what lies further ahead than its own length ----
local stepped = kept.seen > now + 1000
local cut_leases, cut_sent = {}, {}
local longest = own.duration * (own.algorithm == 'fixed_window' and 1 or 2) -- that a limit may send a job back
if stepped then
  cut_leases = call('ZRANGE', active, '(' .. text(now + lease), '+inf', 'BYSCORE', 'LIMIT', '0', text(steps))
  steps = steps - #cut_leases
  for _, id in ipairs(call('ZRANGE', sent, '0', text(steps))) do
    local due = tonumber(call('ZSCORE', delayed, id) or '0')
    if due > now + longest then table.insert(cut_sent, id) end
  end
  steps = math.max(0, steps - #cut_sent)
end

-- ---- Read: due delayed jobs, ended leases ----
local due = call('ZRANGE', delayed, '-inf', text(now), 'BYSCORE', 'LIMIT', '0', text(steps))
steps = steps - #due
local sent_count = call('ZCARD', sent)
local due_sent = {}
for _, id in ipairs(due) do
  local head = call('GETRANGE', job_key(id), '0', tostring(HEAD - 1))
  local place = place_of(head)
  local was_sent = sent_count > 0 and call('ZSCORE', sent, id)
  if was_sent then table.insert(due_sent, id) end
  if not place then
    table.insert(lost, id)
  elseif was_sent then
    table.insert(returning, {place, id, 'due'})
  else
    seq = seq + 1
    local priority = tonumber(string.sub(head, 1, 1))
    table.insert(tails[priority], id)
    tail_places[id] = priority * 1125899906842624 + seq
    table.insert(edits, {id, SEQUENCE, sequence_hex(seq)})
  end
end

local ended = call('ZRANGE', active, '-inf', text(now), 'BYSCORE', 'LIMIT', '0', text(steps))
steps = steps - #ended
local reclaimed, lost_times = {}, {}
for _, member in ipairs(ended) do
  local id = string.match(member, '^[^|]+')
  local head = call('GETRANGE', job_key(id), '0', tostring(HEAD - 1))
  local place = place_of(head)
  if not place then
    table.insert(lost, id)
  else
    local times = counter(head, RECLAIMS) + 1
    table.insert(edits, {id, RECLAIMS, counter_hex(RECLAIMS, times)})
    if times >= reclaims then
      table.insert(poisoned, {id, times})
    else
      lost_times[id] = times
      table.insert(reclaimed, id)
      table.insert(returning, {place, id, 'ended'})
    end
  end
end
local more = steps <= 0
local came_back = call('ZCARD', back)
for priority, list in ipairs(lists) do
  if #tails[priority] > 0 then call('LLEN', list) end
end

-- ---- Judge: the lowest place first, budgets in memory ----
local grants = {}               -- {id, record}
local granted, bytes, free = 0, 0, budget.free
local refused, left_behind      -- the job that the budget refused; whether a grantable job stays
local suspect                   -- granted a job that may be what its workers are lost by: nothing else goes with it
local taken = {0, 0, 0, 0}      -- taken from the head of each list
local tail_taken = {0, 0, 0, 0}
local from_back, from_sent = {}, {}
local gone = {}                 -- returning jobs that were granted, sent back or lost: not put into back

if not own.paused then
  if came_back > 0 then
    local heads = call('ZRANGE', back, '0', text(k), 'WITHSCORES')
    for i = 1, #heads, 2 do table.insert(returning, {tonumber(heads[i + 1]), heads[i], 'back'}) end
  end
  if free > 0 and sent_count > #due_sent then
    -- The budget is back before their time: jobs that it sent back come first, each at its place.
    local is_due = {}
    for _, id in ipairs(due_sent) do is_due[id] = true end
    local heads = call('ZRANGE', sent, '0', text(k + #due_sent), 'WITHSCORES')
    for i = 1, #heads, 2 do
      if not is_due[heads[i]] then table.insert(returning, {tonumber(heads[i + 1]), heads[i], 'sent'}) end
    end
  end
  table.sort(returning, function(a, b) return a[1] < b[1] end)

  local chunk = math.max(1, math.min(257, math.floor(BYTES / math.max(1, kept.largest))))
  local priority, in_tail, ids, records, at = 1, false, {}, {}, 1

  -- The head of the lists: id and record, or nil. It reads on in chunks small enough for the payloads of this queue.
  local function list_head()
    while at > #ids and priority <= 4 do
      local want = math.min(chunk, k - granted + 1, free + 1)
      if in_tail then
        local tail, from = tails[priority], tail_taken[priority]
        ids = {}
        for i = from + 1, math.min(#tail, from + want) do table.insert(ids, tail[i]) end
      else
        local from = taken[priority]
        ids = call('LRANGE', lists[priority], text(from), text(from + want - 1))
      end
      at = 1
      if #ids > 0 then
        local keys = {}
        for i = 1, #ids do keys[i] = job_key(ids[i]) end
        records = call('MGET', unpack(keys))
      elseif in_tail then
        priority, in_tail = priority + 1, false
      else
        in_tail = true
      end
    end
    return ids[at], records[at] or ''
  end

  local next_returning = 1
  local function skip_list()
    at = at + 1
    local counts = in_tail and tail_taken or taken
    counts[priority] = counts[priority] + 1
  end

  while true do
    local job = returning[next_returning]
    while job and job[3] == 'sent' and free <= 0 do
      next_returning = next_returning + 1
      job = returning[next_returning]
    end
    local id, record = list_head()
    local place = id and (tail_places[id] or place_of(record))
    local listed = id and not (job and place and job[1] < place)
    if not listed then
      if not job then break end
      id, record = job[2], call('GET', job_key(job[2])) or ''
      place = place_of(record)
    end

    if place and (granted == k or (suspect and free > 0)) then
      left_behind = free > 0
      more = more or granted < k
      if free <= 0 then refused = false end
      break
    end
    if place and free > 0 and bytes >= BYTES then
      more = true
      break
    end

    -- The job leaves its place: granted, sent back, or lost.
    if listed then
      skip_list()
    else
      next_returning = next_returning + 1
      gone[id] = true
      if job[3] == 'back' then table.insert(from_back, id) end
      if job[3] == 'sent' then table.insert(from_sent, id) end
    end
    if not place then
      steps = steps - 1
      table.insert(lost, id)
    elseif free <= 0 then
      refused = {id, record, place}
      break
    else
      granted = granted + 1
      free = free - 1
      bytes = bytes + #record
      grants[granted] = {id, record}
      local times = lost_times[id] or counter(record, RECLAIMS)
      suspect = times > 0 and times >= reclaims - 1
    end
    if steps <= -128 then
      more = true
      break
    end
  end
end

-- When the budget is back: after this claim's own spending, which may open its window.
bucket_spend(budget, granted)
local retry = 0
if refused ~= nil then
  retry = bucket_wait(budget, 1)
end

-- When it is worth claiming again, in ms from now; -1 when nothing is known to come.
local next_in = -1
local function sooner(ms)
  if next_in < 0 or ms < next_in then next_in = math.max(0, ms) end
end
local upcoming = call('ZRANGE', delayed, text(#due), text(#due), 'WITHSCORES')
if upcoming[2] then sooner(tonumber(upcoming[2]) - now) end
local ending = call('ZRANGE', active, text(#ended), text(#ended), 'WITHSCORES')
if ending[2] then sooner(tonumber(ending[2]) - now) end
if granted > 0 or #cut_leases > 0 then sooner(lease) end
if #cut_sent > 0 then sooner(longest) end
if refused ~= nil then sooner(retry) end
if more or left_behind then next_in = 0 end

-- ---- Write: nothing below can fail ----
if #due > 0 then call('ZREM', delayed, unpack(due)) end
if #due_sent > 0 then call('ZREM', sent, unpack(due_sent)) end
if #ended > 0 then call('ZREM', active, unpack(ended)) end
for _, member in ipairs(cut_leases) do call('ZADD', active, text(now + lease), member) end
for _, id in ipairs(cut_sent) do call('ZADD', delayed, 'XX', text(now + longest), id) end
local edit_of = {}
for _, edit in ipairs(edits) do
  edit_of[edit[1]] = edit
  call('SETRANGE', job_key(edit[1]), tostring(edit[2][1]), edit[3])
end

for priority, list in ipairs(lists) do
  if taken[priority] > 0 then call('LTRIM', list, text(taken[priority]), '-1') end
  for i = tail_taken[priority] + 1, #tails[priority] do call('RPUSH', list, tails[priority][i]) end
end
for _, job in ipairs(returning) do
  if not gone[job[2]] and (job[3] == 'due' or job[3] == 'ended') then call('ZADD', back, text(job[1]), job[2]) end
end
if #from_back > 0 then call('ZREM', back, unpack(from_back)) end
if #from_sent > 0 then
  call('ZREM', sent, unpack(from_sent))
  call('ZREM', delayed, unpack(from_sent))
end
for _, id in ipairs(lost) do
  call('SET', job_key(id), lost_record(now))
  call('ZADD', dead, text(now), id)
  call('HSET', errors, id, 'missing\nthe server lost the record of this job')
end
for _, job in ipairs(poisoned) do
  call('ZADD', dead, text(now), job[1])
  call('HSET', errors, job[1], 'lost\nworker lost ' .. job[2] .. ' times')
end

local token = ''
if granted > 0 then
  seq = seq + 1
  token = sequence_hex(seq) .. '-' .. nonce
  local leases = {}
  for i = 1, granted do
    leases[2 * i - 1] = text(now + lease)
    leases[2 * i] = grants[i][1] .. '|' .. token
  end
  call('ZADD', active, unpack(leases))
end
bucket_write(budget)
if refused then
  call('ZADD', delayed, text(now + retry), refused[1])
  call('ZADD', sent, text(refused[3]), refused[1])
  set_counter(job_key(refused[1]), DEFERRALS, counter(refused[2], DEFERRALS) + 1)
end
if left_behind then push_token() end

local changes = {}
local function keep(name, n)
  table.insert(changes, name)
  table.insert(changes, text(n))
end
if seq ~= kept.seq then keep('seq', seq) end
if now - kept.seen >= 1000 or (stepped and not more) then keep('seen', now) end
if next_in >= 0 and (not alarmed(kept, now, now + next_in)) and kept.alarm ~= now + next_in then
  keep('alarm', now + next_in)
end
if #changes > 0 then call('HSET', state, unpack(changes)) end

local word = 'empty'
if own.paused then
  word = 'paused'
elseif granted > 0 then
  word = 'claimed'
elseif refused ~= nil then
  word = 'limited'
end
if audit_size then
  local ids = {}
  for i = 1, granted do ids[i] = grants[i][1] end
  local dying = {}
  for i = 1, #poisoned do dying[i] = poisoned[i][1] end
  record_audit('claim', 'k', text(k), 'token', token, 'granted', table.concat(ids, ' '),
    'sent_back', refused and refused[1] or '', 'retry_after', text(retry),
    'returned', table.concat(due, ' '), 'reclaimed', table.concat(reclaimed, ' '),
    'dead', table.concat(dying, ' '), 'missing', table.concat(lost, ' '),
    'max', text(own.max), 'duration', text(own.duration), 'lease', text(lease),
    'algorithm', own.algorithm, 'count', text(budget.count or 0), 'remaining', own.max > 0 and text(budget.free) or '-1',
    'opened', (own.max > 0 and own.algorithm == 'fixed_window' and not budget.open and granted > 0) and '1' or '0',
    'more', more and '1' or '0', 'answer', word)
end

local answer = {word, text(now), token, more and 1 or 0, next_in, retry, refused and refused[1] or '',
  own.max, #reclaimed, #poisoned + #lost, granted}
for i = 1, granted do
  local id, record = grants[i][1], grants[i][2]
  local edit = edit_of[id]
  if edit then
    record = string.sub(record, 1, edit[2][1]) .. edit[3] .. string.sub(record, edit[2][1] + edit[2][2] + 1)
  end
  table.insert(answer, id)
  table.insert(answer, record)
end
return answer
