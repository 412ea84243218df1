#!lua flags=allow-oom
-- run brings delayed jobs back now: one that a limit sent back at its own place, any other at the end of its priority.
local meta      = KEYS[1]
local state     = KEYS[2]
local back      = KEYS[3]
local sent      = KEYS[4]
local delayed   = KEYS[5]
local dead      = KEYS[6]
local completed = KEYS[7]
local wait1     = KEYS[8]
local wait2     = KEYS[9]
local wait3     = KEYS[10]
local wait4     = KEYS[11]
local wake      = KEYS[12]
local audit     = KEYS[13]
local rest      = 1         -- ARGV[rest...]: ids
-- include num.lua
-- include settings.lua
-- include record.lua
-- include state.lua
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
  local head = call('GETRANGE', job_key(id), '0', tostring(HEAD - 1))
  local place = place_of(head)
  local at = not place and 'unknown' or where(id, place, now)
  if at == 'delayed' and not seen[id] then
    seen[id] = true
    table.insert(jobs, {id = id, place = place, sent = call('ZSCORE', sent, id)})
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
    call('SETRANGE', job_key(job.id), tostring(SEQUENCE[1]), sequence_hex(seq))
    call('RPUSH', lists[math.floor(job.place / 1125899906842624)], job.id)
  end
end
if #jobs > 0 then
  call('HSET', state, 'seq', text(seq))
  push_token()
  record_audit('run', 'ids', table.concat(touched, ' '))
end
return reply
