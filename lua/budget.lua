#!lua flags=no-writes
-- budget reads the queue's own limit: its rule, what is used and left and until when, as the claim judges it.
local meta      = KEYS[1]
local limiter   = KEYS[2]
local cap       = ARGV[1]   -- '' or 0: the cap in meta
-- include num.lua
-- include settings.lua
-- include bucket.lua
local now = clock()
local own, field, value = settings(meta)
if not own then return {'misconfigured', meta, field, value} end
if cap ~= '' and cap ~= '0' then own.max = tonumber(cap) end
local budget = buckets.new(limiter, own.algorithm, own.max, own.duration, own.burst, '')
local valid, garbage = buckets.read(budget, now)
if not valid then return {'corrupt', limiter, garbage} end
local used, free = 0, -1
if own.max > 0 then
  free = budget.free
  -- A counter may stand above a lowered max.
  used = math.max(budget.cap - free, own.algorithm == 'fixed_window' and budget.count or 0)
end
return {'budget', now, own.algorithm, own.max, own.duration, own.burst, used, free, own.max > 0 and buckets.wait(budget, 1) or 0,
  buckets.reset_in(budget), own.paused and 1 or 0}
