#!lua flags=allow-oom
-- claim brings due jobs and ended leases back, then hands out up to k jobs and spends the budgets they fall under, in one step.
local meta      = KEYS[1]
local state     = KEYS[2]
local limiter   = KEYS[3]
local limits    = KEYS[4]
local overrides = KEYS[5]
local closed    = KEYS[6]
local reasons   = KEYS[7]
local wait1     = KEYS[8]
local wait2     = KEYS[9]
local wait3     = KEYS[10]
local wait4     = KEYS[11]
local back      = KEYS[12]
local sent      = KEYS[13]
local lines     = KEYS[14]
local open      = KEYS[15]
local stale     = KEYS[16]
local tally     = KEYS[17]
local delayed   = KEYS[18]
local active    = KEYS[19]
local leases    = KEYS[20]
local uncounted = KEYS[21]
local dead      = KEYS[22]
local errors    = KEYS[23]
local wake      = KEYS[24]
local audit     = KEYS[25]
local process   = ARGV[1]   -- who claims and stays to watch over the queue; '' for one that does not
local nonce     = ARGV[2]
local k         = tonumber(ARGV[3])   -- up to 1000
local lease     = tonumber(ARGV[4])
local reclaims  = tonumber(ARGV[5])
-- include num.lua
-- include settings.lua
-- include bucket.lua
-- include record.lua
-- include state.lua
k = math.max(0, math.min(k, 1000))

-- ---- Read: settings, limits, clock, budget ----
local now = clock()
-- include limits.lua
-- include basis.lua
-- include closed.lua
-- include line.lua
-- include leases.lua
-- include judge.lua
-- include wake.lua
-- include watch.lua
-- include audit.lua

local BYTES = 262144            -- no further job is added after this much payload
local steps = 128               -- for what comes back, is lost or refused; k more are granted
local seq = kept.seq
local heads = {}                -- the heads of records that change, by id, written at the end
local lost = {}                 -- ids whose record the server lost
local dying = {}                -- jobs that go to dead: {id, reason and text}
local lists = {wait1, wait2, wait3, wait4}
-- include candidates.lua

-- Changes a counter in the head of a record.
local function change(id, record, name, digits)
  local field = counters[name]
  local head = heads[id] or string.sub(record, 1, HEAD)
  heads[id] = string.sub(head, 1, field[1]) .. digits .. string.sub(head, field[1] + field[2] + 1)
end

-- include step.lua
-- include returns.lua
-- include counting.lua

-- ---- Read: what comes back ----
if step.back then steps = steps - step.read(steps) end
steps = steps - read_due(steps)
steps = steps - read_ended(steps)
if #candidates.returning > 0 then call('ZCARD', back) end
local more = steps <= 0 or #counting.members > 0
for priority, list in ipairs(lists) do
  if #candidates.tails[priority] > 0 then call('LLEN', list) end
end
-- After a step of the clock all lines are judged anew, by the next claim.
local all_stale = step.back and (line.some or #step.closed > 0)
if all_stale then more = true end

-- ---- Judge: the lowest place first, budgets in memory ----
local grants = {ids = {}, records = {}, spent = {}} -- in their order; spent is what a lease holds beside its job, if anything
local granted, bytes = 0, 0
local refused, left_behind      -- the job that a limit for all refused (false for none); whether a grantable job stays
local suspect                   -- granted a job that may be what its workers are lost by: nothing else goes with it
local sent_back = {}            -- ids, buckets, retry-afters of jobs that joined lines
local moved = {}                -- the same of jobs that went from one line to another
local token = sequence_hex(seq + 1) .. '-' .. nonce
limited.opening = text(seq + 1)

local function grant(job, asks)
  local id, record = job[2], job[5]
  candidates.leave(job)
  granted, bytes = granted + 1, bytes + #record
  grants.ids[granted], grants.records[granted] = id, record
  if asks then
    if judge.some_hold then judge.drop_holds(id, asks) end
    local spent = judge.spend(record, asks)
    if spent then grants.spent[granted] = spent end
  end
  local times, moves = string.byte(record, HEAD - 1, HEAD) -- reclaims and moves
  if times == 48 and moves == 48 and not returns.times[id] then return end -- '0' both, as of most jobs
  if counters.read(record, 'moves') > 0 then change(id, record, 'moves', '0') end
  times = returns.times[id] or counters.read(record, 'reclaims')
  suspect = times > 0 and times >= reclaims - 1
end

-- Grants the next jobs of the lists, up to most in all, as long as nothing is special about them: no worker was lost by them, no line moved
-- them, they begin with the keys of the limits by key, and these grant them one unit each. Returns how many.
local function grant_plain(most)
  local c, byte, looks_right, limits, n = candidates, string.byte, candidates.looks_right, #judged, granted
  local ids, records, at, asked = c.ids, c.records, c.at, {}
  while n < most and ids[at] and bytes < BYTES do
    local enough = true
    local record = records[at] or ''
    local times, moves = byte(record, HEAD - 1, HEAD)
    if times ~= 48 or moves ~= 48 or not looks_right(record) then break end
    for i = 1, limits do
      local limit = judged[i]
      local value = headers.first(record, limit.by)
      local b = value and (limit.buckets and limit.buckets[value] or judge.bucket(limit, value))
      if not b or b.free < 1 or b.line then enough = false break end
      asked[i] = b
    end
    if not enough or limited.broken then break end
    for i = 1, limits do
      local b = asked[i]
      if b.rule then b.rule.spend(b, 1) end
    end
    n = n + 1
    grants.ids[n], grants.records[n] = ids[at], record
    at, bytes = at + 1, bytes + #record
  end
  local counts = c.in_tail and c.tail_taken or c.taken
  if at > c.at then counts[c.priority] = counts[c.priority] + at - c.at end
  local before = granted
  granted = n
  c.at = at
  return n - before
end

-- The job stands in the line of a bucket from now on.
local function send_back(job, asks, bucket, retry)
  local place, id, stands, record = job[1], job[2], job[4], job[5]
  local moves = string.byte(record, HEAD) == 48 and 0 or counters.read(record, 'moves') -- '0' of most jobs
  local goes = judge.line(bucket)
  if goes == stands then
    candidates.stay(job, now + retry)
  else
    local head = line.head(goes)
    line.join(goes, place, id)
    if not (head and head < place) then line.sleep(goes, now + retry) end
    candidates.leave(job)
    if stands then
      moves = moves + 1
      change(id, record, 'moves', counters.hex('moves', moves))
      table.insert(moved, id .. ' ' .. limited.id(bucket) .. ' ' .. text(retry))
    else
      change(id, record, 'deferrals', counters.hex('deferrals', counters.read(record, 'deferrals') + 1))
      local n = #sent_back
      sent_back[n + 1], sent_back[n + 2], sent_back[n + 3] = id, limited.id(bucket), text(retry)
    end
  end
  if moves >= MOVES_TO_HOLD then judge.hold(place, id, asks, candidates.reopen) end
end

local function lose(job)
  candidates.leave(job)
  table.insert(lost, job[2])
end

local function hand_out()
  judge.sort(budget, named)
  local free = judge.free()
  local refusals = math.max(32, steps)
  local unused = 0              -- bytes of jobs that were read and refused
  local reach = k + refusals        -- places of their own that are read
  candidates.read_set(back, 'back', {}, reach)
  -- The budget may be back before their time: jobs that it sent back come first, each at its place.
  if free > 0 then candidates.read_set(sent, 'sent', returns.is_due, reach) end
  if #candidates.returning > 1 then candidates.sort() end
  if line.some and candidates.read_lines(reach) then more = true end
  local chunk = math.max(1, math.min(257, math.floor(BYTES / math.max(1, kept.largest))))
  local least = judge.all_alike and 1 or 64 -- records read at once: where jobs differ the refused ones are not counted in k
  local function want() return math.min(chunk, math.max(k - granted + 1, least), free + 1) end

  local plain = judge.plain and #candidates.returning == 0 and candidates.bound == math.huge
  while not limited.broken do
    if plain and judge.placeless and not suspect then free = free - grant_plain(math.min(k, granted + free)) end
    local job = candidates.head(want, free)
    if not job then return end
    local place, id = job[1], job[2]
    if place and place > candidates.bound then
      more = true
      return
    elseif not place then
      lose(job)
      refusals = refusals - 1
    elseif free <= 0 then
      refused = false
      if granted < k and not job[4] then
        candidates.leave(job)
        job[1] = job[3] == 'list' and candidates.place(id, job[5]) or place
        refused = job
      end
      return
    elseif suspect then -- what is left may be grantable
      left_behind, more = true, more or granted < k
      return
    elseif bytes >= BYTES and granted < k then
      more = true
      return
    else
      local asks, verdict, bucket, retry = nil, 'granted'
      if not (judge.simple and judge.all_alike) then
        asks = judge.asks(job[5], judged)
        if limited.broken then return end
        if not judge.grants(asks) then verdict, bucket, retry = judge.job(place, id, asks, job[4]) end
        if verdict ~= 'granted' and judge.placeless then
          judge.placeless = false
          if job[3] == 'list' then
            place = candidates.place(id, job[5])
            job[1] = place
            if not place then verdict = 'lost' end
          end
        end
      end
      if verdict == 'granted' and granted == k then
        left_behind = true
        return
      elseif verdict == 'granted' then
        grant(job, asks)
        free = judge.simple and free - 1 or judge.free()
      elseif verdict == 'lost' then
        lose(job)
        refusals = refusals - 1
      elseif verdict == 'never' then
        candidates.leave(job)
        judge.drop_holds(id, asks, function(b) candidates.reopen(b, place, id) end)
        table.insert(dying, {id, 'never_fits\n' .. judge.never_text(bucket)})
        refusals = refusals - 1
      else
        send_back(job, asks, bucket, retry)
        refusals, unused = refusals - 1, unused + #job[5]
      end
    end
    if refusals <= 0 or unused >= BYTES then
      more = true
      return
    end
  end
end
if not own.paused and #counting.members == 0 and not all_stale then
  hand_out()
  judge.spend_simply(granted)
end
if limited.broken then return limited.broken end

-- When the budget is back: after this claim's own spending, which may open its window.
local retry, refuser = 0, ''
if refused ~= nil then retry, refuser = judge.wait() end

-- When it is worth claiming again, in ms from now; -1 when nothing is known to come.
local function next_claim()
  if more or left_behind then return 0 end
  local next_in = -1
  local function sooner(ms)
    if next_in < 0 or ms < next_in then next_in = math.max(0, ms) end
  end
  local upcoming = call('ZRANGE', delayed, text(#returns.due), text(#returns.due), 'WITHSCORES')
  if upcoming[2] then sooner(tonumber(upcoming[2]) - now) end
  local ending = call('ZRANGE', active, text(#returns.ended), text(#returns.ended), 'WITHSCORES')
  if ending[2] then sooner(tonumber(ending[2]) - now) end
  local waking = not own.paused and line.known() and line.next(candidates.woken)
  if waking then sooner(waking - now) end
  if granted > 0 or (step.back and #step.leases > 0) then sooner(lease) end
  if step.back and #step.sent > 0 then sooner(step.longest) end
  if refused ~= nil then sooner(retry) end
  return next_in
end
local next_in = next_claim()

local function watch_over()
  local there = more or left_behind -- work that this claim leaves for another
  local due = nil
  if not there then due = next_in < 0 and 0 or now + next_in end
  watch.alarm(process, due)
  watch.deputize(process)
  watch.keep('want', there and now or 0)
end
watch_over()

local shadow_counts = {}
for name, n in pairs(shadowed) do
  shadow_counts[name] = (whole(call('HGET', tally, 'shadow ' .. name)) or 0) + n
end

if next(grants.spent) then call('HLEN', leases) end
if #dying + #lost > 0 then
  call('ZCARD', dead)
  call('HLEN', errors)
end

-- ---- Write: nothing below can fail ----
returns.write()
if step.back then step.write() end
counting.write()
candidates.write()
for _, id in ipairs(lost) do
  call('SET', job_key(id), lost_record(now))
  call('ZADD', dead, text(now), id)
  call('HSET', errors, id, 'missing\nthe server lost the record of this job')
end
for _, job in ipairs(dying) do
  call('ZADD', dead, text(now), job[1])
  call('HSET', errors, job[1], job[2])
end

local function write_grants()
  seq = seq + 1
  local members, held = {}, {}
  local suffix, till = '|' .. token, text(now + lease)
  for i = 1, granted do
    local member, spent = grants.ids[i] .. suffix, grants.spent[i]
    members[2 * i - 1], members[2 * i] = till, member
    if spent then
      for _, bucket in ipairs(spent.places) do call('ZADD', limiter .. ':' .. bucket, till, member) end
      table.insert(held, member)
      table.insert(held, spent.words)
    end
  end
  call('ZADD', active, unpack(members))
  if #held > 0 then call('HSET', leases, unpack(held)) end
end
if granted > 0 then write_grants() else token = '' end
if own.max > 0 then buckets.write(budget) end
if #limited.list > 0 then judge.write() end
if all_stale then
  call('ZUNIONSTORE', stale, '2', stale, lines)
  call('UNLINK', lines)
  for _, l in ipairs(line.list) do
    if l.was == 'asleep' then l.was = 'stale' end
  end
end
if line.known() then line.write() end
for name, n in pairs(shadow_counts) do call('HSET', tally, 'shadow ' .. name, text(n)) end
if refused then
  call('ZADD', delayed, text(now + retry), refused[2])
  call('ZADD', sent, text(refused[1]), refused[2])
  change(refused[2], refused[5], 'deferrals', counters.hex('deferrals', counters.read(refused[5], 'deferrals') + 1))
end
for id, head in pairs(heads) do call('SETRANGE', job_key(id), '0', head) end
if left_behind then
  push_token(judge.free())
elseif tokens > 0 and not more then
  call('UNLINK', wake) -- nobody else need come
end

local function write_state()
  watch.keep('seq', seq)
  if now - kept.seen >= 1000 or (step.back and step.all) then watch.keep('seen', now) end
  if judge.some_hold and judge.last_hold() > kept.held then watch.keep('held', judge.last_hold()) end
  watch.write()
end
write_state()

local word = 'empty'
if own.paused then
  word = 'paused'
elseif granted > 0 then
  word = 'claimed'
elseif refused ~= nil then
  word = 'limited'
end
if refused then
  for _, part in ipairs({refused[2], refuser, text(retry)}) do table.insert(sent_back, part) end
end
local function tell()
  local died, sent_words = {}, {}
  for i = 1, #sent_back, 3 do
    local bucket = sent_back[i + 1] ~= '' and sent_back[i + 1] or '*'
    table.insert(sent_words, sent_back[i] .. ' ' .. bucket .. ' ' .. sent_back[i + 2])
  end
  for i, job in ipairs(dying) do died[i] = job[1] end
  record_audit('claim', 'k', text(k), 'token', token, 'granted', table.concat(grants.ids, ' '),
    'sent_back', table.concat(sent_words, ','), 'moved', table.concat(moved, ','), 'held', judge.holds(), 'retry_after', text(retry),
    'returned', table.concat(returns.due, ' '), 'reclaimed', table.concat(returns.reclaimed, ' '),
    'dead', table.concat(died, ' '), 'missing', table.concat(lost, ' '),
    'max', text(own.max), 'duration', text(own.duration), 'lease', text(lease),
    'algorithm', own.algorithm, 'burst', text(own.burst), 'count', text(budget.count or 0), 'remaining', own.max > 0 and text(budget.free) or '-1',
    'opened', (own.max > 0 and own.algorithm == 'fixed_window' and not budget.open and granted > 0) and '1' or '0',
    'more', more and '1' or '0', 'answer', word)
end
if audit_size then tell() end

local alarm, look = watch.timers(process, false)
local answer = {word, text(now), token, more and 1 or 0, next_in, (more or (left_behind and judge.free() > FEW)) and 1 or 0, alarm, look, retry,
  (own.max > 0 or #named > 0) and 1 or 0, #returns.reclaimed, #dying + #lost, granted, #sent_back / 3}
local fixed = #answer
for i = 1, granted do
  local id, record = grants.ids[i], grants.records[i]
  if heads[id] then record = heads[id] .. string.sub(record, HEAD + 1) end
  answer[fixed + 2 * i - 1], answer[fixed + 2 * i] = id, record
end
fixed = #answer
for i = 1, #sent_back do answer[fixed + i] = sent_back[i] end
return answer
