#!lua flags=allow-oom
-- take spends n units of one bucket, looks whether it could, or gives units back. A denial writes nothing but repairs.
local bucket    = KEYS[1]
local op        = ARGV[1]   -- take, upto, peek, refund, reset
local n         = tonumber(ARGV[2])
local algorithm = ARGV[3]
local max       = tonumber(ARGV[4])
local window    = tonumber(ARGV[5])
local burst     = tonumber(ARGV[6])
local options   = ARGV[7]
-- include num.lua
-- include bucket.lua
local now = clock()
if op == 'reset' then
  call('EXISTS', bucket)
  call('UNLINK', bucket)
  return {'decision', now, 1, 0, max == 0 and -1 or max, 0, 0, 0}
end
local b = buckets.new(bucket, algorithm, max, window, burst, options)
local valid, garbage = buckets.read(b, now)
if not valid then return {'corrupt', bucket, garbage} end

local retry, granted, delay = 0, 0, 0
if op == 'refund' then
  buckets.refund(b, n)
elseif op == 'peek' then
  retry = buckets.wait(b, n)
  if retry == 0 and n > 0 then delay = buckets.delay(b) end
elseif n > 0 then
  local want = op == 'upto' and math.max(1, math.min(n, b.free)) or n
  retry = buckets.ask(b, want)
  if retry == 0 then
    granted, delay = want, buckets.delay(b)
    buckets.spend(b, granted)
  end
end
local reset = buckets.reset_in(b)
if n > 0 and op ~= 'peek' and retry >= 0 then buckets.write(b) end
return {'decision', now, retry == 0 and 1 or 0, granted, max == 0 and -1 or b.free, retry, reset, delay}
