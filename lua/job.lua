#!lua flags=no-writes
-- job looks at one job: its state, what it is delayed by and until when, its record, its last error, its result.
local meta      = KEYS[1]
local back      = KEYS[2]
local sent      = KEYS[3]
local delayed   = KEYS[4]
local active    = KEYS[5]
local dead      = KEYS[6]
local completed = KEYS[7]
local errors    = KEYS[8]
local id        = ARGV[1]
-- include num.lua
-- include record.lua
-- include where.lua
local now = clock()
local record = call('GET', job_key(id))
local place = record and place_of(record)
if not place then return {'unknown'} end
local state, at = where(id, place, now)
local by = ''
local failure = call('HGET', errors, id) or ''
if state == 'delayed' then
  by = 'delay'
  if call('ZSCORE', sent, id) then
    by = 'limit'
  elseif string.sub(failure, 1, 6) == 'retry\n' then
    by = 'retry'
  elseif counter(record, DEFERRALS) > 0 then
    by = 'defer'
  end
elseif state == 'active' then
  local leases = call('ZRANGE', active, '0', '4095', 'WITHSCORES')
  for i = 1, #leases, 2 do
    if string.sub(leases[i], 1, #id + 1) == id .. '|' then at = tonumber(leases[i + 1]) end
  end
end
return {'found', now, state, at, by, record, failure, call('GET', prefix .. 'result:' .. id) or ''}
