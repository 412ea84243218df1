#!lua flags=no-writes
-- budget reads the queue's own limit: cap, window, units used and time left, by the rules the claim spends it by.
local meta      = KEYS[1]
local limiter   = KEYS[2]
local cap       = ARGV[1]   -- '' or 0: the cap in meta
-- include num.lua
-- include settings.lua
-- include window.lua
local now = clock()
local own, field, value = settings(meta)
if not own then return {'misconfigured', meta, field, value} end
if cap ~= '' and cap ~= '0' then own.max = tonumber(cap) end
local window, garbage = window_read(limiter, own.max, own.duration)
if not window then return {'corrupt', limiter, garbage} end
return {'budget', now, own.max, own.duration, window.count, window.left, own.paused and 1 or 0}
