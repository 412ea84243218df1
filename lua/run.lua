#!lua flags=allow-oom
-- run brings delayed jobs back now: one that a limit sent back, or that stands in a line, at its own place, any other at the end of its priority.
local meta      = KEYS[1]
local limits    = KEYS[2]
local removed   = KEYS[3]
local lines     = KEYS[4]
local open      = KEYS[5]
local stale     = KEYS[6]
local tally     = KEYS[7]
local state     = KEYS[8]
local back      = KEYS[9]
local sent      = KEYS[10]
local delayed   = KEYS[11]
local dead      = KEYS[12]
local completed = KEYS[13]
local wait1     = KEYS[14]
local wait2     = KEYS[15]
local wait3     = KEYS[16]
local wait4     = KEYS[17]
local wake      = KEYS[18]
local audit     = KEYS[19]
local rest      = 1         -- ARGV[rest...]: ids
-- include num.lua
-- include settings.lua
-- include record.lua
-- include state.lua
-- include limits.lua
-- include line.lua
-- include where.lua
local now = clock()
local own, field, value = settings(meta)
if field == 'layout' then return {'misconfigured', meta, field, value} end
local kept, wrong = read_state(state)
if not kept then return {'corrupt', state, wrong} end
-- include wake.lua
-- include audit.lua
local lists = {wait1, wait2, wait3, wait4}
for _, list in ipairs(lists) do call('LLEN', list) end
call('ZCARD', back)

local reply = {'run'}
local jobs, seen, seq = {}, {}, kept.seq
for i = rest, #ARGV do
  local id = ARGV[i]
  local record = read_header(id)
  local place = place_of(record)
  local at, _, bucket = 'unknown'
  if place then at, _, bucket = where(id, record, now) end
  if at == 'delayed' and not seen[id] then
    seen[id] = true
    table.insert(jobs, {id = id, place = place, sent = bucket or call('ZSCORE', sent, id)})
    if bucket then line.pull(line.of(bucket), id) end
  end
  table.insert(reply, at)
end
local touched = {}
for n, job in ipairs(jobs) do
  touched[n] = job.id
  call('ZREM', delayed, job.id)
  if job.sent then
    call('ZREM', sent, job.id)
    call('ZADD', back, text(job.place), job.id)
  else
    seq = seq + 1
    call('SETRANGE', job_key(job.id), tostring(counters.sequence[1]), sequence_hex(seq))
    call('RPUSH', lists[math.floor(job.place / 1125899906842624)], job.id)
  end
end
line.write()
if #jobs > 0 then
  call('HSET', state, 'seq', text(seq))
  push_token()
  record_audit('run', 'ids', table.concat(touched, ' '))
end
return reply
