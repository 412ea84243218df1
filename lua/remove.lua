#!lua flags=allow-oom
-- remove deletes jobs in any state but active.
local meta      = KEYS[1]
local state     = KEYS[2]
local limits    = KEYS[3]
local removed   = KEYS[4]
local lines     = KEYS[5]
local open      = KEYS[6]
local stale     = KEYS[7]
local tally     = KEYS[8]
local back      = KEYS[9]
local sent      = KEYS[10]
local delayed   = KEYS[11]
local dead      = KEYS[12]
local completed = KEYS[13]
local errors    = KEYS[14]
local wake      = KEYS[15]
local audit     = KEYS[16]
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
