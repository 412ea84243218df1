#!lua
-- enqueue puts jobs in: each waits at the end of its priority's list, or is delayed until its due time.
local meta      = KEYS[1]
local state     = KEYS[2]
local limiter   = KEYS[3]
local wait1     = KEYS[4]
local wait2     = KEYS[5]
local wait3     = KEYS[6]
local wait4     = KEYS[7]
local delayed   = KEYS[8]
local wake      = KEYS[9]
local audit     = KEYS[10]
local rest      = 1   -- ARGV[rest...], four a job: id, priority, when ('' now, '+ms' from now, '@ms' at), header and payload
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

-- ---- Read ----
local now = clock()
local own, field, value = settings(meta)
local kept, wrong = read_state(state)
if not kept then return {'corrupt', state, wrong} end
if field == 'layout' then return {'misconfigured', meta, field, value} end
-- A limit that is misconfigured closes the claim, not the enqueue.
local budget = own and new_bucket(limiter, own.algorithm, own.max, own.duration, own.burst, '')
local refusing = own and (own.paused or (bucket_read(budget, now) and budget.free <= 0))
-- include wake.lua
-- include audit.lua
local lists = {wait1, wait2, wait3, wait4}
for _, list in ipairs(lists) do call('LLEN', list) end
call('ZCARD', delayed)

local seq, largest = kept.seq, kept.largest
local reply = {'enqueued', now}
local seen = {}
local sets, tails, dues = {}, {{}, {}, {}, {}}, {}
local ids, places = {}, {}
local earliest
for i = rest, #ARGV, 4 do
  local id, priority, when, body = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local key, tail = job_key(id), tails[tonumber(priority)] or error('priority is not 1 to 4')
  if seen[id] or call('EXISTS', key) == 1 then
    table.insert(reply, 'duplicate')
  else
    seen[id] = true
    seq = seq + 1
    local record = new_head(priority, seq, now) .. body
    table.insert(sets, key)
    table.insert(sets, record)
    largest = math.max(largest, #record)
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
      table.insert(tail, id)
    end
    table.insert(reply, 'new')
    if audit_size then
      table.insert(ids, id)
      table.insert(places, priority .. ':' .. text(seq) .. (due > now and ('@' .. text(due)) or ''))
    end
  end
end

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
  for priority, list in ipairs(lists) do in_parts('RPUSH', list, tails[priority]) end
  if own and not own.layout then call('HSET', meta, 'layout', '1') end
  call('HSET', state, 'seq', text(seq), 'largest', text(largest))

  -- Whoever can run them is woken. While the budget refuses nobody is, unless no process has set a timer for its return.
  local waiting = #dues / 2 < #sets / 2
  if waiting and not refusing then
    push_token()
  elseif waiting and not own.paused and not alarmed(kept, now, now + bucket_wait(budget, 1)) then
    push_token()
  elseif earliest and not alarmed(kept, now, earliest) then
    push_token()
  end
  record_audit('enqueue', 'ids', table.concat(ids, ' '), 'places', table.concat(places, ' '))
end
return reply
