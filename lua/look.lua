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
-- include window.lua
local now = clock()
local own, field, value = settings(meta)
if not own then return {'misconfigured', meta, field, value} end
local window, garbage = window_read(limiter, own.max, own.duration)
if not window then return {'corrupt', limiter, garbage} end

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
  if window.free > 0 and waiting + call('ZCARD', sent) > 0 then
    at(0)
  elseif waiting > 0 then
    at(window.left)
  end
end
return {'look', soonest}
