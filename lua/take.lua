#!lua flags=allow-oom
-- take spends n units of one bucket, looks whether it could, or gives units back. A denial writes nothing but repairs.
local bucket    = KEYS[1]
local op        = ARGV[1]   -- take, upto, peek, refund, reset
local max       = tonumber(ARGV[2])
local duration  = tonumber(ARGV[3])
local n         = tonumber(ARGV[4])
-- include num.lua
-- include window.lua
local now = clock()
if op == 'reset' then
  call('EXISTS', bucket)
  call('UNLINK', bucket)
  return {'decision', now, 1, 0, max == 0 and -1 or max, 0, 0}
end
if max == 0 then return {'decision', now, 1, op == 'refund' and 0 or n, -1, 0, 0} end
local w, garbage = window_read(bucket, max, duration)
if not w then return {'corrupt', bucket, garbage} end

local allowed, granted, retry = 1, 0, 0
if op == 'refund' then
  granted = math.min(n, w.count)
  if granted > 0 then
    call('DECRBY', bucket, text(granted))
    window_repair(w)
  end
  w.count = w.count - granted
elseif n > 0 then
  granted = op == 'upto' and math.min(n, w.free) or n
  if op ~= 'upto' and n > max then
    allowed, granted, retry = 0, 0, -1
  elseif granted == 0 or granted > w.free then
    allowed, granted, retry = 0, 0, w.left
    if op ~= 'peek' then window_repair(w) end
  elseif op ~= 'peek' then
    w.left = window_spend(w, granted)
    w.count = w.count + granted
  else
    granted = n
  end
end
return {'decision', now, allowed, granted, math.max(0, max - w.count), retry, w.count > 0 and w.left or 0}
