#!lua flags=allow-oom
-- remove deletes jobs in any state but active.
local meta      = KEYS[1]
local limits    = KEYS[2]
local removed   = KEYS[3]
local lines     = KEYS[4]
local open      = KEYS[5]
local stale     = KEYS[6]
local tally     = KEYS[7]
local back      = KEYS[8]
local sent      = KEYS[9]
local delayed   = KEYS[10]
local dead      = KEYS[11]
local completed = KEYS[12]
local errors    = KEYS[13]
local wake      = KEYS[14]
local audit     = KEYS[15]
local rest      = 1         -- ARGV[rest...]: ids
-- include num.lua
-- include settings.lua
-- include record.lua
-- include limits.lua
-- include line.lua
-- include where.lua
local now = clock()
local own, field, value = settings(meta)
if field == 'layout' then return {'misconfigured', meta, field, value} end
-- include wake.lua
-- include audit.lua
for _, set in ipairs({back, sent, dead, completed}) do call('ZCARD', set) end
call('HLEN', errors)

local reply = {'removed'}
local jobs, seen = {}, {}
local freed = false -- the head of a line may be another one now
for i = rest, #ARGV do
  local id = ARGV[i]
  local record = read_header(id)
  local place = place_of(record)
  local at, _, bucket = where(id, record, now)
  if at ~= 'unknown' and at ~= 'active' and not seen[id] then
    seen[id] = true
    call('EXISTS', job_key(id), prefix .. 'result:' .. id)
    table.insert(jobs, {id = id, place = place, at = at})
    if bucket then
      line.pull(line.of(bucket), id)
      if line.head(line.of(bucket)) then freed = true end
    end
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
line.write()
if freed then push_token() end
if #jobs > 0 then record_audit('remove', 'ids', table.concat(touched, ' ')) end
return reply
