#!lua flags=allow-oom
-- remove deletes jobs in any state but active.
local meta      = KEYS[1]
local back      = KEYS[2]
local sent      = KEYS[3]
local delayed   = KEYS[4]
local dead      = KEYS[5]
local completed = KEYS[6]
local errors    = KEYS[7]
local audit     = KEYS[8]
local rest      = 1         -- ARGV[rest...]: ids
-- include num.lua
-- include settings.lua
-- include record.lua
-- include where.lua
local now = clock()
local own, field, value = settings(meta)
if field == 'layout' then return {'misconfigured', meta, field, value} end
-- include audit.lua
for _, set in ipairs({back, sent, dead, completed}) do call('ZCARD', set) end
call('HLEN', errors)

local reply = {'removed'}
local jobs, seen = {}, {}
for i = rest, #ARGV do
  local id = ARGV[i]
  local place = place_of(call('GETRANGE', job_key(id), '0', tostring(HEAD - 1)))
  local at = where(id, place, now)
  if at ~= 'unknown' and at ~= 'active' and not seen[id] then
    seen[id] = true
    call('EXISTS', job_key(id), prefix .. 'result:' .. id)
    table.insert(jobs, {id = id, place = place, at = at})
  end
  table.insert(reply, at)
end
local touched = {}
for n, job in ipairs(jobs) do
  touched[n] = job.id
  if job.at == 'wait' and call('ZREM', back, job.id) == 0 then
    call('LREM', prefix .. 'wait:' .. math.floor(job.place / 1125899906842624), '1', job.id)
  end
  for _, set in ipairs({delayed, sent, dead, completed}) do call('ZREM', set, job.id) end
  call('HDEL', errors, job.id)
  call('UNLINK', job_key(job.id), prefix .. 'result:' .. job.id)
end
if #jobs > 0 then record_audit('remove', 'ids', table.concat(touched, ' ')) end
return reply
