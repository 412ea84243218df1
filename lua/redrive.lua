#!lua flags=allow-oom
-- redrive brings dead jobs back with their attempts given back, at the end of their priority.
local meta      = KEYS[1]
local limits    = KEYS[2]
local removed   = KEYS[3]
local lines     = KEYS[4]
local open      = KEYS[5]
local stale     = KEYS[6]
local state     = KEYS[7]
local back      = KEYS[8]
local delayed   = KEYS[9]
local dead      = KEYS[10]
local completed = KEYS[11]
local errors    = KEYS[12]
local wait1     = KEYS[13]
local wait2     = KEYS[14]
local wait3     = KEYS[15]
local wait4     = KEYS[16]
local wake      = KEYS[17]
local audit     = KEYS[18]
local rest      = 1         -- ARGV[rest...]: ids
-- include num.lua
-- include settings.lua
-- include record.lua
-- include state.lua
-- include limits.lua
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
call('HLEN', errors)

local reply = {'redriven'}
local jobs, seen, seq = {}, {}, kept.seq
for i = rest, #ARGV do
  local id = ARGV[i]
  local record = read_header(id)
  local place = place_of(record)
  local at = place and where(id, record, now) or 'unknown'
  if at == 'dead' and string.sub(call('HGET', errors, id) or '', 1, 8) == 'missing\n' then
    at = 'missing'
  elseif at == 'dead' and not seen[id] then
    seen[id] = true
    table.insert(jobs, {id = id, place = place})
  end
  table.insert(reply, at)
end
local touched = {}
for n, job in ipairs(jobs) do
  touched[n] = job.id
  seq = seq + 1
  local key = job_key(job.id)
  call('ZREM', dead, job.id)
  call('HDEL', errors, job.id)
  call('SETRANGE', key, tostring(counters.sequence[1]), sequence_hex(seq))
  counters.write(key, 'attempts', 0)
  counters.write(key, 'reclaims', 0)
  call('RPUSH', lists[math.floor(job.place / 1125899906842624)], job.id)
end
if #jobs > 0 then
  call('HSET', state, 'seq', text(seq))
  push_token()
  record_audit('redrive', 'ids', table.concat(touched, ' '))
end
return reply
