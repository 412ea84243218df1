#!lua
-- enqueue puts jobs in: each waits at the end of its priority's list, or is delayed until its due time.
local meta      = KEYS[1]
local state     = KEYS[2]
local limiter   = KEYS[3]
local limits    = KEYS[4]
local overrides = KEYS[5]
local closed    = KEYS[6]
local wait1     = KEYS[7]
local wait2     = KEYS[8]
local wait3     = KEYS[9]
local wait4     = KEYS[10]
local delayed   = KEYS[11]
local wake      = KEYS[12]
local audit     = KEYS[13]
local priority  = ARGV[1]   -- of all jobs; '' where they differ in it or in when
local when      = ARGV[2]   -- '' now, '+ms' from now, '@ms' at
local rest      = 3   -- ARGV[rest...], two a job: id, header and payload; four where they differ: id, priority, when, header and payload
-- include num.lua
-- include settings.lua
-- include bucket.lua
-- include record.lua
-- include state.lua

-- ---- Read ----
local now = clock()
-- include limits.lua
-- include closed.lua
local own, field, value = settings(meta)
local kept, wrong = read_state(state, true)
if not kept then return {'corrupt', state, wrong} end
if field == 'layout' then return {'misconfigured', meta, field, value} end
-- A limit that is misconfigured closes the claim, not the enqueue.
local named = read_limits(limits) or {}
local refused_for = 0           -- how long a limit for all jobs refuses
local free = math.huge          -- what they would grant
if own and own.max > 0 then
  local budget = buckets.new(limiter, own.algorithm, own.max, own.duration, own.burst, '')
  if buckets.read(budget, now) then refused_for, free = buckets.wait(budget, 1), budget.free end
end
refused_for = math.max(refused_for, closed_for('queue'))
local by_cost = {}              -- limits that a job may be too heavy for
for _, limit in ipairs(named) do
  if limit.unit and not limit.shadow then table.insert(by_cost, limit) end
  if limited.for_all(limit) and not limit.shadow then
    local b = limited.bucket(limit)
    if b.rule then refused_for, free = math.max(refused_for, buckets.wait(b, 1)), math.min(free, b.free) end
  end
end
local refusing = own and (own.paused or refused_for > 0)

-- Why no budget could ever grant a job; nil if one can.
local function too_heavy(record)
  local keys, costs = headers.read(record)
  for _, limit in ipairs(by_cost) do
    local value, n = limited.falls_under(limit, keys, costs)
    local rule = n > 0 and limited.rule_for(limit, overrides, value)
    if rule then
      local cap = buckets.rule(limit.algorithm, rule.max, rule.window, rule.burst, '').cap
      if n > cap then return 'heavy ' .. limit.name .. ' ' .. limit.unit .. ' ' .. text(n) .. ' ' .. text(cap) end
    end
  end
end
-- include wake.lua
-- include audit.lua
local lists = {wait1, wait2, wait3, wait4}
local seq, largest = kept.seq, kept.largest
local reply = {'enqueued', now} -- then the number of each job that is not stored, and why
local seen = {}
local sets, tails, dues = {}, {['1'] = {}, ['2'] = {}, ['3'] = {}, ['4'] = {}}, {}
local ids, places, header_words = {}, {}, {} -- for the audit
local earliest
local argv, keys, of_jobs = ARGV, {}, job_key('')
local alike = priority ~= ''
local words = alike and 2 or 4
for i = rest, #argv, words do keys[#keys + 1] = of_jobs .. argv[i] end
local some_exist = false
for i = 1, #keys, 4000 do
  if call('EXISTS', unpack(keys, i, math.min(i + 3999, #keys))) > 0 then some_exist = true end
end
-- Heads differ in few digits: what is before the last two of the sequence, and from these on, is made once.
local head_end = string.sub(new_head('1', 0, now), 14)
local high, lows = nil, {}
for job = 1, #keys do
  local key, i = keys[job], rest + (job - 1) * words
  local id, body = argv[i], argv[i + words - 1]
  if not alike then priority, when = argv[i + 1], argv[i + 2] end
  local tail = tails[priority] or error('priority is not 1 to 4')
  local low = (seq + 1) % 256
  if not high or low == 0 then high = string.sub(sequence_hex(seq + 1), 1, 10) end
  if not lows[low] then lows[low] = string.format('%02x', low) .. head_end end
  local record = priority .. high .. lows[low] .. body
  local heavy = #by_cost > 0 and too_heavy(record)
  local refused = (seen[id] or some_exist and call('EXISTS', key) == 1) and 'duplicate' or heavy
  if refused then
    table.insert(reply, job)
    table.insert(reply, refused)
  else
    seen[id] = true
    seq = seq + 1
    local n = #sets
    sets[n + 1], sets[n + 2] = key, record
    if #record > largest then largest = #record end
    local due = now
    if when ~= '' then
      due = tonumber(string.sub(when, 2))
      if string.sub(when, 1, 1) == '+' then due = now + due end
    end
    if due > now then
      table.insert(dues, text(due))
      table.insert(dues, id)
      earliest = math.min(earliest or due, due)
    else
      tail[#tail + 1] = id
    end
    if audit_size then
      table.insert(ids, id)
      table.insert(places, priority .. ':' .. text(seq) .. (due > now and ('@' .. text(due)) or ''))
      local keys, costs = headers.read(record)
      if next(keys) or next(costs) then
        table.insert(header_words, 'header ' .. #ids)
        table.insert(header_words, headers.text(record))
      end
    end
  end
end
for priority, list in ipairs(lists) do
  if #tails[text(priority)] > 0 then call('LLEN', list) end
end
if #dues > 0 then call('ZCARD', delayed) end

-- ---- Write ----
local function in_parts(command, key, values)
  for i = 1, #values, 4000 do
    if key then
      call(command, key, unpack(values, i, math.min(i + 3999, #values)))
    else
      call(command, unpack(values, i, math.min(i + 3999, #values)))
    end
  end
end
if #sets > 0 then
  in_parts('MSET', nil, sets)
  in_parts('ZADD', delayed, dues)
  for priority, list in ipairs(lists) do in_parts('RPUSH', list, tails[text(priority)]) end
  if own and not own.layout then call('HSET', meta, 'layout', '1') end

  -- Whoever can run them is woken. While the budget refuses nobody is, unless no process has set a timer for its return.
  local waiting = #dues / 2 < #sets / 2
  local wakes = waiting and not refusing or
    waiting and not own.paused and not alarmed(kept, now, now + refused_for) or
    earliest and not alarmed(kept, now, earliest)
  if wakes and kept.want == 0 then kept.want = now end
  call('HSET', state, 'seq', text(seq), 'largest', text(largest), 'want', text(kept.want))
  if wakes then push_token(free) end
  record_audit('enqueue', 'ids', table.concat(ids, ' '), 'places', table.concat(places, ' '), unpack(header_words))
end
return reply
