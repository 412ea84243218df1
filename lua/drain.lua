#!lua flags=allow-oom
-- drain deletes up to count jobs that wait, and with '1' those that are delayed too; active, dead and completed jobs stay.
local meta      = KEYS[1]
local wait1     = KEYS[2]
local wait2     = KEYS[3]
local wait3     = KEYS[4]
local wait4     = KEYS[5]
local back      = KEYS[6]
local sent      = KEYS[7]
local lines     = KEYS[8]
local open      = KEYS[9]
local stale     = KEYS[10]
local tally     = KEYS[11]
local delayed   = KEYS[12]
local errors    = KEYS[13]
local audit     = KEYS[14]
local also      = ARGV[1]
local count     = tonumber(ARGV[2])   -- up to 1000
-- include num.lua
-- include settings.lua
-- include record.lua
-- include line.lua
count = math.max(1, math.min(count, 1000))
local now = clock()
local own, field, value = settings(meta)
if field == 'layout' then return {'misconfigured', meta, field, value} end
-- include audit.lua
call('HLEN', errors)
call('ZCARD', sent)
call('ZCARD', delayed)

local ids = call('ZRANGE', back, '0', text(count - 1))
local from_back = #ids
local lists = {wait1, wait2, wait3, wait4}
local from_list = {}
for n, list in ipairs(lists) do
  local some = count > #ids and call('LRANGE', list, '0', text(count - #ids - 1)) or {}
  from_list[n] = #some
  for _, id in ipairs(some) do table.insert(ids, id) end
end
local after_lists = #ids
-- Jobs that a limit sent back are waiting jobs to their owner; a due time of its own makes a job delayed.
for _, id in ipairs(call('ZRANGE', sent, '0', text(math.max(0, count - #ids)))) do
  if #ids < count then table.insert(ids, id) end
end
local seen = {} -- a line may be open and stale at once
for _, set in ipairs({open, stale, lines}) do
  for _, bucket in ipairs(call('ZRANGE', set, '0', text(count - 1))) do
    local l = count > #ids and not seen[bucket] and line.of(bucket)
    seen[bucket] = true
    for _, id in ipairs(l and call('ZRANGE', l.key, '0', text(count - #ids - 1)) or {}) do
      line.pull(l, id)
      table.insert(ids, id)
    end
  end
end
if also == '1' then
  local taken = {}
  for _, id in ipairs(ids) do taken[id] = true end
  for _, id in ipairs(call('ZRANGE', delayed, '0', text(count - 1))) do
    if #ids < count and not taken[id] then table.insert(ids, id) end
  end
end

local keys, loose = {}, {}
for i, id in ipairs(ids) do
  table.insert(keys, job_key(id))
  if i > after_lists then table.insert(loose, id) end
end
if #keys > 0 then call('EXISTS', unpack(keys)) end

if from_back > 0 then call('ZREMRANGEBYRANK', back, '0', text(from_back - 1)) end
for n, list in ipairs(lists) do
  if from_list[n] > 0 then call('LTRIM', list, text(from_list[n]), '-1') end
end
if #loose > 0 then
  call('ZREM', sent, unpack(loose))
  call('ZREM', delayed, unpack(loose))
end
line.write()
if #ids > 0 then
  call('HDEL', errors, unpack(ids))
  call('UNLINK', unpack(keys))
  record_audit('drain', 'ids', table.concat(ids, ' '))
end
return {'drained', #ids, #ids == count and 1 or 0}
