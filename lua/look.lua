#!lua flags=no-writes
-- look says when a claim is worth making, in ms: 0 now, -1 nothing is known to come. It changes nothing.
local meta      = KEYS[1]
local limiter   = KEYS[2]
local wait1     = KEYS[3]
local wait2     = KEYS[4]
local wait3     = KEYS[5]
local wait4     = KEYS[6]
local back      = KEYS[7]
local sent      = KEYS[8]
local delayed   = KEYS[9]
local active    = KEYS[10]
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
local now = clock()
local own, field, value = settings(meta)
if not own then return {'misconfigured', meta, field, value} end
local budget = new_bucket(limiter, own.algorithm, own.max, own.duration, own.burst, '')
local valid, garbage = bucket_read(budget, now)
if not valid then return {'corrupt', limiter, garbage} end

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
  if budget.free > 0 and waiting + call('ZCARD', sent) > 0 then
    at(0)
  elseif waiting > 0 then
    at(bucket_wait(budget, 1))
  end
end
return {'look', soonest}
