#!lua flags=allow-oom
-- takeall spends n units of each of several buckets, or of none. A denial writes nothing but repairs.
local bucket = KEYS[1]   -- and the others: each once, all in one slot
local op     = ARGV[1]   -- take, upto
local n      = tonumber(ARGV[2])
local rest   = 3         -- five for each bucket: algorithm, max, window, burst, options
-- include num.lua
-- include bucket.lua
local now = clock()
local list, want = {}, n
for i, key in ipairs(KEYS) do
  local at = rest + 5 * (i - 1)
  local b = buckets.new(key, ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), ARGV[at + 4])
  local valid, garbage = buckets.read(b, now)
  if not valid then return {'corrupt', key, garbage} end
  list[i] = b
  if op == 'upto' then want = math.min(want, b.free) end
end
if n > 0 and want == 0 then want = 1 end -- upto: what they wait for

-- The longest wait of those that deny; never if one never grants.
local retry = 0
for _, b in ipairs(list) do
  b.wait = buckets.ask(b, want)
  retry = (retry < 0 or b.wait < 0) and -1 or math.max(retry, b.wait)
end
local granted = retry == 0 and want or 0

local free, reset, delay, each = math.huge, 0, 0, {}
for _, b in ipairs(list) do
  local b_delay = granted > 0 and buckets.delay(b) or 0
  buckets.spend(b, granted)
  local b_reset = buckets.reset_in(b)
  free, reset, delay = math.min(free, b.free), math.max(reset, b_reset), math.max(delay, b_delay)
  for _, value in ipairs({b.wait, b.max == 0 and -1 or b.free, b_reset, b_delay}) do
    each[#each + 1] = value
  end
end
local reply = {'decision', now, retry == 0 and 1 or 0, granted, free == math.huge and -1 or free, retry, reset, delay}
for _, value in ipairs(each) do
  reply[#reply + 1] = value
end
if n > 0 and retry >= 0 then
  for _, b in ipairs(list) do
    buckets.write(b)
  end
end
return reply
