#!lua flags=allow-oom
-- settle ends claimed jobs, each guarded by its lease. A call that is sent again gets the answers of the first.
local meta      = KEYS[1]
local state     = KEYS[2]
local active    = KEYS[3]
local delayed   = KEYS[4]
local back      = KEYS[5]
local dead      = KEYS[6]
local completed = KEYS[7]
local errors    = KEYS[8]
local wake      = KEYS[9]
local audit     = KEYS[10]
local process   = ARGV[1]   -- who settles; its calls follow one another
local sequence  = ARGV[2]   -- the number of this call
local remember  = tonumber(ARGV[3])   -- how long its answers are kept, ms
local rest      = 4         -- ARGV[rest...], five a job: outcome, id, token, ms, text
-- include num.lua
-- include settings.lua
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
local kept, wrong = read_state(state)
if not kept then return {'corrupt', state, wrong} end
-- include wake.lua
-- include audit.lua
call('ZCARD', delayed)
call('ZCARD', back)
call('ZCARD', dead)
call('ZCARD', completed)
local failures = call('HLEN', errors)

local outcomes = {complete = true, retry = true, defer = true, back = true, dead = true}
local members, keys, results = {}, {}, {}
for i = rest, #ARGV, 5 do
  if not outcomes[ARGV[i]] then return redis.error_reply('ERR an outcome is none of complete, retry, defer, back, dead') end
  table.insert(members, ARGV[i + 1] .. '|' .. ARGV[i + 2])
  table.insert(keys, job_key(ARGV[i + 1]))
  table.insert(results, prefix .. 'result:' .. ARGV[i + 1])
end
local ends = call('ZMSCORE', active, unpack(members))
call('EXISTS', unpack(keys))
call('EXISTS', unpack(results))

local answers, jobs, seen = {}, {}, {}
for n, member in ipairs(members) do
  local i = rest + 5 * (n - 1)
  if ends[n] and tonumber(ends[n]) > now and not seen[member] then
    seen[member] = true
    local job = {outcome = ARGV[i], id = ARGV[i + 1], ms = math.max(0, tonumber(ARGV[i + 3])), text = ARGV[i + 4], key = keys[n],
      result = results[n], member = member}
    if job.outcome ~= 'complete' then
      job.head = call('GETRANGE', job.key, '0', tostring(HEAD - 1))
      job.place = place_of(job.head)
      if not job.place then job.outcome = 'missing' end
    end
    table.insert(jobs, job)
    table.insert(answers, 'd')
  else
    table.insert(answers, 'l')
  end
end

-- ---- Write ----
local left, removed, cleared, earliest, handed_back = {}, {}, {}, nil, false
for _, job in ipairs(jobs) do
  table.insert(left, job.member)
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
    set_counter(job.key, ATTEMPTS, counter(job.head, ATTEMPTS) + 1)
    set_counter(job.key, RECLAIMS, 0)
    call('HSET', errors, job.id, 'retry\n' .. job.text)
  elseif job.outcome == 'defer' then
    set_counter(job.key, DEFERRALS, counter(job.head, DEFERRALS) + 1)
    set_counter(job.key, RECLAIMS, 0)
  elseif job.outcome == 'back' then
    call('ZADD', back, text(job.place), job.id)
    handed_back = true
  else
    local why = job.text
    if job.outcome == 'missing' then
      call('SET', job.key, lost_record(now))
      why = 'missing\nthe server lost the record of this job'
    else
      set_counter(job.key, ATTEMPTS, counter(job.head, ATTEMPTS) + 1)
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
if handed_back or (earliest and not alarmed(kept, now, earliest)) then push_token() end

-- Kept results end by their own TTL; the list of them is trimmed a little by each call that looks at it.
local over = call('ZRANGE', completed, '-inf', '(' .. text(now), 'BYSCORE', 'LIMIT', '0', '128')
if #over > 0 then call('ZREM', completed, unpack(over)) end

local answered = table.concat(answers)
call('SET', remembered, sequence .. ' ' .. answered, 'PX', text(math.max(1, remember)))
if audit_size then
  local entries = {}
  for i, job in ipairs(jobs) do
    entries[i] = job.outcome .. ' ' .. job.member .. ' ' .. text(job.ms)
  end
  record_audit('settle', 'process', process, 'jobs', table.concat(entries, ','), 'lost', tostring(#members - #jobs))
end
return {'settled', answered}
