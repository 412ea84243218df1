#!lua flags=no-writes
-- look says when a claim is worth making, in ms: 0 now, -1 nothing is known to come. It changes nothing.
local meta      = KEYS[1]
local limiter   = KEYS[2]
local limits    = KEYS[3]
local overrides = KEYS[4]
local closed    = KEYS[5]
local wait1     = KEYS[6]
local wait2     = KEYS[7]
local wait3     = KEYS[8]
local wait4     = KEYS[9]
local back      = KEYS[10]
local sent      = KEYS[11]
local lines     = KEYS[12]
local open      = KEYS[13]
local stale     = KEYS[14]
local delayed   = KEYS[15]
local active    = KEYS[16]
local uncounted = KEYS[17]
-- include num.lua
-- include settings.lua
-- include ratio.lua
-- include fixed_window.lua
-- include sliding_log.lua
-- include sliding_window_counter.lua
-- include level.lua
-- include token_bucket.lua
-- include leaky_bucket.lua
-- include bucket.lua
-- include concurrency.lua
-- include record.lua
local now = clock()
-- include limits.lua
-- include closed.lua
local own, field, value = settings(meta)
if not own then return {'misconfigured', meta, field, value} end
local budget = new_bucket(limiter, own.algorithm, own.max, own.duration, own.burst, '')
local valid, garbage = bucket_read(budget, now)
if not valid then return {'corrupt', limiter, garbage} end

local named, bad_name, bad_text = read_limits(limits)
if not named then return {'misconfigured', limits, bad_name, bad_text} end
local refused_for = math.max(bucket_wait(budget, 1), closed_for('queue'))
for _, limit in ipairs(named) do
  if for_all(limit) and not limit.shadow then
    local b = limited.bucket(limit)
    if limited.broken then return limited.broken end
    refused_for = math.max(refused_for, bucket_wait(b, 1))
  end
end

local soonest = -1
local function at(ms)
  ms = math.max(0, ms)
  if soonest < 0 or ms < soonest then soonest = ms end
end
for _, set in ipairs({delayed, active}) do
  local first = call('ZRANGE', set, '0', '0', 'WITHSCORES')
  if first[2] then at(tonumber(first[2]) - now) end
end
if not own.paused then
  local waiting = call('LLEN', wait1) + call('LLEN', wait2) + call('LLEN', wait3) + call('LLEN', wait4) + call('ZCARD', back)
  if refused_for == 0 and waiting + call('ZCARD', sent) + call('ZCARD', open) + call('ZCARD', stale) > 0 then
    at(0)
  elseif waiting > 0 then
    at(refused_for)
  end
  local first = call('ZRANGE', lines, '0', '0', 'WITHSCORES')
  if first[2] then at(math.max(tonumber(first[2]) - now, refused_for)) end
  if call('ZCARD', uncounted) > 0 then at(0) end
end
return {'look', soonest}
