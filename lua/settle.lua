#!lua flags=allow-oom
-- settle ends claimed jobs, each guarded by its lease. A call that is sent again gets the answers of the first.
local meta      = KEYS[1]
local state     = KEYS[2]
local limiter   = KEYS[3]
local limits    = KEYS[4]
local overrides = KEYS[5]
local closed    = KEYS[6]
local reasons   = KEYS[7]
local lines     = KEYS[8]
local open      = KEYS[9]
local stale     = KEYS[10]
local tally     = KEYS[11]
local active    = KEYS[12]
local leases    = KEYS[13]
local delayed   = KEYS[14]
local back      = KEYS[15]
local dead      = KEYS[16]
local completed = KEYS[17]
local errors    = KEYS[18]
local wake      = KEYS[19]
local audit     = KEYS[20]
local records   = 20        -- KEYS[records + n]: the record of the n-th job that is complete and leaves nothing
local process   = ARGV[1]   -- who settles; its calls follow one another
local sequence  = ARGV[2]   -- the number of this call
local remember  = tonumber(ARGV[3])   -- how long its answers are kept, ms
local plain     = tonumber(ARGV[4])   -- how many jobs are complete and leave nothing
local rest      = 5         -- ARGV[rest...]: those as id|token; then six a job: outcome, id, token, ms, text, real costs as 'unit=n unit=n'
-- include num.lua
-- include settings.lua
-- include bucket.lua
-- include record.lua
-- include state.lua

-- ---- Read ----
local remembered = prefix .. 'settled:' .. process
local last = call('GET', remembered)
if last and string.sub(last, 1, #sequence + 1) == sequence .. ' ' then
  return {'settled', string.sub(last, #sequence + 2)}
end
local now = clock()
local own, field, value = settings(meta)
if field == 'layout' then return {'misconfigured', meta, field, value} end
local kept, wrong = read_state(state, true)
if not kept then return {'corrupt', state, wrong} end
-- include limits.lua
-- include line.lua
-- include leases.lua
-- include wake.lua
-- include audit.lua
local failures = call('HLEN', errors)

local outcomes = {complete = true, retry = true, defer = true, back = true, dead = true, limited = true}
local members, keys, results = {}, {}, {}
do
  local argv, names = ARGV, KEYS
  for n = 1, plain do members[n], keys[n] = argv[rest + n - 1], names[records + n] end
end
for i = rest + plain, #ARGV, 6 do
  if not outcomes[ARGV[i]] then return redis.error_reply('ERR an outcome is none of complete, retry, defer, back, dead, limited') end
  table.insert(members, ARGV[i + 1] .. '|' .. ARGV[i + 2])
  table.insert(keys, job_key(ARGV[i + 1]))
  table.insert(results, prefix .. 'result:' .. ARGV[i + 1])
end
local ends = call('ZMSCORE', active, unpack(members))
-- A record that cannot be reached ends the call before it writes. Those of plain jobs are declared keys, which the server looks at itself.
if #results > 0 then
  call('EXISTS', unpack(keys, plain + 1))
  call('EXISTS', unpack(results))
end

local answers, jobs, seen = {}, {}, {}
local left, removed, done = {}, {}, 0 -- the members that end, the plain ones first; keys of jobs that go; how many plain ones
for n = 1, #members do
  local member = members[n]
  if not (ends[n] and tonumber(ends[n]) > now) or seen[member] then
    answers[n] = 'l'
  elseif n <= plain then
    seen[member], answers[n] = true, 'd'
    done = done + 1
    left[done], removed[done] = member, keys[n]
  else
    seen[member], answers[n] = true, 'd'
    local i = rest + plain + 6 * (n - plain - 1)
    local job = {outcome = ARGV[i], id = ARGV[i + 1], ms = math.max(0, tonumber(ARGV[i + 3])), text = ARGV[i + 4], costs = ARGV[i + 5], key = keys[n],
      result = results[n - plain], member = member}
    if job.outcome ~= 'complete' or job.costs ~= '' then
      job.head = (job.outcome == 'limited' or job.costs ~= '') and read_header(job.id) or head_of(job.id)
      job.place = place_of(job.head)
      if not job.place and job.outcome ~= 'complete' then job.outcome = 'missing' end
    end
    table.insert(jobs, job)
    table.insert(left, member)
  end
end

for _, set in ipairs(#jobs > 0 and {delayed, back, dead} or {}) do call('ZCARD', set) end
-- Kept results end by their own TTL; the list of them is trimmed a little by each call.
local over = call('ZRANGE', completed, '-inf', '(' .. text(now), 'BYSCORE', 'LIMIT', '0', '128')
local some_rare = call('EXISTS', leases, reasons) > 0

-- What the leases held: the places under concurrency limits come free, and of costs the difference to the real ones is given back
-- or charged. Whoever waits for it can run.
local words, freed, ready = some_rare and leased.read(left) or {}, {}, false
local seq = kept.seq
limited.opening = text(seq + 1)

-- Settles the real cost of a job in one bucket, of which its lease took {units, mark, bucket}.
local function settle_cost(limit, value, real, took)
  local b = if_readable(limited.bucket, limit, value)
  if not b then return end
  if real < took[1] then
    -- What a reset, or another limit of that name, made whole since is not given back again.
    if took[3] == limited.id(b) then buckets.give_back(b, took[1] - real, took[2], took[1]) end
    if if_readable(line.ready, limited.id(b)) then ready = true end
  else
    if b.algorithm == 'fixed_window' and not b.open and real > took[1] then seq = kept.seq + 1 end
    buckets.charge(b, real - took[1])
  end
end

local named
for member, held in pairs(words) do
  freed[member] = leased.readable_places(held)
  for _, bucket in ipairs(freed[member]) do
    if_readable(line.ready, bucket)
    ready = true
  end
end
for _, job in ipairs(jobs) do
  if job.costs ~= '' and job.place then
    named = named or read_limits(limits) or {}
    local took = {}
    for _, word in ipairs(words[job.member] or {}) do
      local bucket, n, mark = string.match(word, '^([^|]+)|[^|]+|([^|]+)|([^|]+)$')
      if bucket then took[leased.same_limit(bucket)] = {whole(n) or 0, mark, bucket} end
    end
    local job_keys = headers.read(job.head)
    for unit, n in string.gmatch(job.costs, '(%S+)=(%d+)') do
      for _, limit in ipairs(named) do
        local real, value = whole(n), limit.by and job_keys[limit.by]
        if real and limit.unit == unit and (value or not limit.by) then
          settle_cost(limit, value, real, took[leased.same_limit(limited.bucket_id(limit, value))] or {0})
        end
      end
    end
  end
end

-- A close by a job's handler, of the queue or of the value of the job's key; it only ever lengthens.
local shuts = {}
for _, job in ipairs(jobs) do
  if job.outcome == 'limited' then
    local key, why = string.match(job.text, '^([^\n]*)\n(.*)$')
    local what = 'queue'
    if key and key ~= '' then
      local value = headers.read(job.head)[key]
      what = value and key .. ':' .. value
    end
    if what and job.ms > 0 then
      local till = tonumber(shuts[what] and shuts[what].till or call('ZSCORE', closed, what) or '0')
      if now + job.ms > till then shuts[what] = {till = now + job.ms, why = text(job.ms) .. '\n' .. (why or '')} end
    end
  end
end
if next(shuts) then call('HLEN', reasons) end
-- What handlers closed by the thousand is forgotten, once it has ended, by all settles that follow.
local over_closed = some_rare and if_readable(function()
  return call('HLEN', reasons) > 0 and call('ZRANGE', closed, '-inf', text(now), 'BYSCORE', 'LIMIT', '0', '128')
end) or {}

-- ---- Write ----
for member, places in pairs(freed) do
  for _, bucket in ipairs(places) do call('ZREM', limiter .. ':' .. bucket, member) end
  call('HDEL', leases, member)
end
for _, b in ipairs(limited.list) do buckets.write(b) end
if line.known() then line.write() end
for _, what in ipairs(over_closed) do
  call('ZREM', closed, what)
  call('HDEL', reasons, what)
end
for what, shut in pairs(shuts) do
  call('ZADD', closed, text(shut.till), what)
  call('HSET', reasons, what, shut.why)
end
if seq ~= kept.seq then call('HSET', state, 'seq', text(seq)) end
local cleared, earliest, handed_back = {}, nil, false
for n = 1, failures > 0 and done or 0 do cleared[n] = string.match(left[n], '^[^|]*') end
for _, job in ipairs(jobs) do
  if job.outcome == 'complete' then
    if failures > 0 then table.insert(cleared, job.id) end
    if job.ms == 0 then
      table.insert(removed, job.key)
    else
      call('PEXPIRE', job.key, text(job.ms))
      call('ZADD', completed, text(now + job.ms), job.id)
      if job.text ~= '' then call('SET', job.result, job.text, 'PX', text(job.ms)) end
    end
  elseif job.outcome == 'retry' then
    counters.write(job.key, 'attempts', counters.read(job.head, 'attempts') + 1)
    counters.write(job.key, 'reclaims', 0)
    call('HSET', errors, job.id, 'retry\n' .. job.text)
  elseif job.outcome == 'defer' then
    counters.write(job.key, 'deferrals', counters.read(job.head, 'deferrals') + 1)
    counters.write(job.key, 'reclaims', 0)
  elseif job.outcome == 'back' or job.outcome == 'limited' then
    if job.outcome == 'limited' then
      counters.write(job.key, 'deferrals', counters.read(job.head, 'deferrals') + 1)
      counters.write(job.key, 'reclaims', 0)
    end
    call('ZADD', back, text(job.place), job.id)
    handed_back = true
  else
    local why = job.text
    if job.outcome == 'missing' then
      call('SET', job.key, lost_record(now))
      why = 'missing\nthe server lost the record of this job'
    else
      counters.write(job.key, 'attempts', counters.read(job.head, 'attempts') + 1)
    end
    call('ZADD', dead, text(now), job.id)
    call('HSET', errors, job.id, why)
  end
  if job.outcome == 'retry' or job.outcome == 'defer' then
    call('ZADD', delayed, text(now + job.ms), job.id)
    earliest = math.min(earliest or now + job.ms, now + job.ms)
  end
end
if #left > 0 then call('ZREM', active, unpack(left)) end
if #removed > 0 then call('UNLINK', unpack(removed)) end
if #cleared > 0 then call('HDEL', errors, unpack(cleared)) end
if handed_back or ready or (earliest and not alarmed(kept, now, earliest)) then push_token() end
if #over > 0 then call('ZREM', completed, unpack(over)) end

local answered = table.concat(answers)
call('SET', remembered, sequence .. ' ' .. answered, 'PX', text(math.max(1, remember)))
if audit_size then
  local entries = {}
  for n = 1, done do entries[n] = 'complete ' .. left[n] .. ' 0' end
  for _, job in ipairs(jobs) do
    local key = job.outcome == 'limited' and string.match(job.text, '^[^\n]+')
    entries[#entries + 1] = job.outcome .. (key and ':' .. key or '') .. ' ' .. job.member .. ' ' .. text(job.ms) .. (job.costs ~= '' and ' ' .. job.costs or '')
  end
  record_audit('settle', 'process', process, 'jobs', table.concat(entries, ','), 'lost', tostring(#members - #left))
end
return {'settled', answered}
