#!lua flags=no-writes
-- budgets reads all limits of the queue as the claim judges them: rule, what is used and left and until when, and the jobs that wait.
local meta      = KEYS[1]
local limiter   = KEYS[2]
local limits    = KEYS[3]
local overrides = KEYS[4]
local closed    = KEYS[5]
local reasons   = KEYS[6]
local sent      = KEYS[7]
local tally     = KEYS[8]
local top       = tonumber(ARGV[1])   -- so many key values of a limit, those with most jobs in line
local rest      = 2   -- ARGV[rest...], two each: a limit and a key value that is read too
-- include num.lua
-- include settings.lua
-- include bucket.lua
-- include record.lua
local now = clock()
-- include limits.lua
local own, field, value = settings(meta)
if not own then return {'misconfigured', meta, field, value} end
local named, bad_name, bad_text = read_limits(limits)
if not named then return {'misconfigured', limits, bad_name, bad_text} end
local more = call('HMGET', meta, 'limit_at', 'limit_reason', 'paused_at', 'paused_reason')

-- One bucket: its rule, units used, free and to be used at once at most, retry-after, reset-after.
local function figures(b, value)
  local used = 0
  if b.max > 0 then
    used = b.algorithm == 'concurrency' and b.used or math.max(b.cap - b.free, b.algorithm == 'fixed_window' and b.count or 0)
  end
  return {value or '', b.max, b.window, b.burst, used, b.max > 0 and b.free or -1, b.max > 0 and buckets.wait(b, 1) or 0,
    buckets.reset_in(b)}
end

local budget = buckets.new(limiter, own.algorithm, own.max, own.duration, own.burst, '')
local valid, garbage = buckets.read(budget, now)
if not valid then return {'corrupt', limiter, garbage} end
local reply = {'budgets', now, own.paused and 1 or 0, more[4] or '', {}, {}}
if own.max > 0 then
  local only = figures(budget)
  table.insert(only, call('ZCARD', sent))
  table.insert(reply[5], {'', own.algorithm, own.max, own.duration, own.burst, '', '', 'live', tonumber(more[1] or '0'), more[2] or '',
    call('ZCARD', sent), 0, 0, {only}})
end
for _, limit in ipairs(named) do
  local values, shown = {}, {}
  local function show(value, id)
    if shown[id] then return end
    shown[id] = true
    local b
    if value == nil then
      -- The value of a bucket that only its id names: its rule cannot be asked for otherwise.
      value = string.gsub(string.sub(id, #limit.bucket + 2), '%%(%x%x)', function(hex) return string.char(tonumber(hex, 16)) end)
    end
    b = limited.bucket(limit, limit.by and value or nil)
    if limited.broken then return end
    local one = figures(b, value)
    table.insert(one, tonumber(call('ZSCORE', prefix .. 'lined:' .. limit.bucket, id) or '0'))
    table.insert(values, one)
  end
  if limit.by then
    for i = rest, #ARGV, 2 do
      if ARGV[i] == limit.name then show(ARGV[i + 1], limited.bucket_id(limit, ARGV[i + 1])) end
    end
    if top > 0 then
      for _, id in ipairs(call('ZRANGE', prefix .. 'lined:' .. limit.bucket, '0', text(top - 1), 'REV')) do show(nil, id) end
    end
  else
    show('', limit.bucket)
  end
  if limited.broken then return limited.broken end
  table.insert(reply[5], {limit.name, limit.algorithm, limit.max, limit.window, limit.burst, limit.by or '', limit.unit or '',
    limit.shadow and 'shadow' or 'live', limit.at, limit.reason, whole(call('HGET', tally, 'line ' .. limit.bucket)) or 0,
    call('ZCARD', prefix .. 'lined:' .. limit.bucket), whole(call('HGET', tally, 'shadow ' .. limit.name)) or 0, values})
end
local shut = call('ZRANGE', closed, '(' .. text(now), '+inf', 'BYSCORE', 'LIMIT', '0', '1000', 'WITHSCORES')
for i = 1, #shut, 2 do
  local key, value = string.match(shut[i], '^([^:]+):(.*)$')
  local why = string.match(call('HGET', reasons, shut[i]) or '', '^[^\n]*\n(.*)$') or ''
  table.insert(reply[6], {key or '', value or '', tonumber(shut[i + 1]), why,
    key and tonumber(call('ZSCORE', prefix .. 'lined:=' .. key, '=' .. key .. ':' .. limited.encoded(value)) or '0') or call('ZCARD', sent)})
end
return reply
