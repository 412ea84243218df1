#!lua flags=no-writes
-- job looks at one job: its state, what it is delayed by and until when, its record, its last error, its result.
local meta      = KEYS[1]
local limits    = KEYS[2]
local removed   = KEYS[3]
local lines     = KEYS[4]
local open      = KEYS[5]
local stale     = KEYS[6]
local back      = KEYS[7]
local sent      = KEYS[8]
local delayed   = KEYS[9]
local active    = KEYS[10]
local dead      = KEYS[11]
local completed = KEYS[12]
local errors    = KEYS[13]
local id        = ARGV[1]
-- include num.lua
-- include settings.lua
-- include record.lua
-- include limits.lua
-- include where.lua
local now = clock()
local record = read_record(id)
if not place_of(record) then return {'unknown'} end
local state, at, bucket = where(id, record, now)
local by = ''
local failure = call('HGET', errors, id) or ''
if state == 'delayed' then
  by = 'delay'
  if bucket or call('ZSCORE', sent, id) then
    by = 'limit'
  elseif string.sub(failure, 1, 6) == 'retry\n' then
    by = 'retry'
  elseif counters.read(record, 'deferrals') > 0 then
    by = 'defer'
  end
elseif state == 'active' then
  local leases = call('ZRANGE', active, '0', '4095', 'WITHSCORES')
  for i = 1, #leases, 2 do
    if string.sub(leases[i], 1, #id + 1) == id .. '|' then at = tonumber(leases[i + 1]) end
  end
end
return {'found', now, state, at, by, record, failure, call('GET', prefix .. 'result:' .. id) or '', bucket or ''}
