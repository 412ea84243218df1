#!lua flags=no-writes
-- explain says why a job is where it is: what it asks of which limit, what blocks it, behind how many, until when.
local meta      = KEYS[1]
local state     = KEYS[2]
local limiter   = KEYS[3]
local limits    = KEYS[4]
local overrides = KEYS[5]
local removed   = KEYS[6]
local closed    = KEYS[7]
local lines     = KEYS[8]
local open      = KEYS[9]
local stale     = KEYS[10]
local tally     = KEYS[11]
local back      = KEYS[12]
local sent      = KEYS[13]
local delayed   = KEYS[14]
local dead      = KEYS[15]
local completed = KEYS[16]
local id        = ARGV[1]
local lease     = tonumber(ARGV[2])   -- of the fleet: the most that a place under a concurrency limit takes to come free
-- include num.lua
-- include settings.lua
-- include bucket.lua
-- include record.lua
-- include state.lua
local now = clock()
-- include limits.lua
-- include basis.lua
-- include closed.lua
-- include line.lua
-- include judge.lua
-- include where.lua
local record = read_header(id)
local place = place_of(record)
if not place then return {'unknown'} end
local at_state, at, stands = where(id, record, now)
local reply = {'explained', now, at_state, at, stands or '', 0, own.paused and 1 or 0, '', '', 0, {}}
if stands then reply[6] = call('ZRANK', prefix .. 'line:' .. stands, id) end
if at_state == 'delayed' and not stands then
  -- Its place among those that the limits for all jobs sent back; -1 for one that has a due time of its own.
  reply[6] = call('ZRANK', sent, id) or -1
elseif at_state == 'wait' then
  reply[6] = call('LPOS', prefix .. 'wait:' .. string.sub(record, 1, 1), id, 'MAXLEN', '10000') or -1
end
if at_state == 'wait' or at_state == 'delayed' then
  judge.sort(budget, named)
  local asks = judge.asks(record, judged)
  if limited.broken then return limited.broken end
  local verdict, bucket, retry = judge.job(place, id, asks, stands and line.of(stands))
  local wait, name = judge.wait()
  if verdict == 'granted' and wait > 0 then
    verdict, bucket, retry = 'limited', {id = name}, wait
  elseif verdict == 'never' then
    bucket, retry = bucket[1], -1
  end
  reply[8], reply[9], reply[10] = verdict, bucket and limited.id(bucket) or '', retry or 0
  local function tell(b, n)
    local head = b.line and line.head(b.line)
    local ahead = b.line and call('ZCOUNT', b.line.key, '-inf', '(' .. text(place)) or 0
    local held = b.limit and judge.held_from(b, place, id) or 0
    table.insert(reply[11], {b.limit and limited.id(b) or b.id or '', b.limit and b.limit.by or '', b.limit and b.limit.unit or '', n, b.max > 0 and b.free or b.shut and 0 or -1,
      b.limit and judge.wait_for(b, n, place, id) or buckets.wait(b, n), ahead, held})
  end
  for _, b in ipairs(globals) do tell(b, 1) end
  for _, ask in ipairs(asks) do tell(ask[1], ask[2]) end
end
return reply
