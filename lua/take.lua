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
if max == 0 then return {'decision', now, 1, (op == 'take' or op == 'upto') and n or 0, -1, 0, 0} end
local w, garbage = window_read(bucket, max, duration)
if not w then return {'corrupt', bucket, garbage} end

local allowed, granted, retry = 1, 0, 0
if op == 'refund' then
  local back = w.stopped and 0 or math.min(n, w.count)
  if back > 0 then
    call('DECRBY', bucket, text(back))
    window_repair(w)
  end
  w.count = w.count - back
elseif n > 0 then
  local want = op == 'upto' and math.min(n, w.free) or n
  if op ~= 'upto' and n > max then
    allowed, retry = 0, -1
  elseif want == 0 or want > w.free then
    allowed, retry = 0, w.left
    if op ~= 'peek' then window_repair(w) end
  elseif op ~= 'peek' then
    granted = want
    w.left = window_spend(w, granted)
    w.count = w.count + granted
  end
end
return {'decision', now, allowed, granted, math.max(0, max - w.count), retry, w.count > 0 and w.left or 0}
