#!lua flags=allow-oom
-- named sets, changes or removes a limit by name, or makes its budget whole. What was used stays used; what is allowed changes at once.
local meta      = KEYS[1]
local state     = KEYS[2]
local limiter   = KEYS[3]
local limits    = KEYS[4]
local overrides = KEYS[5]
local removed   = KEYS[6]
local lines     = KEYS[7]
local open      = KEYS[8]
local stale     = KEYS[9]
local tally     = KEYS[10]
local active    = KEYS[11]
local leases    = KEYS[12]
local uncounted = KEYS[13]
local wake      = KEYS[14]
local audit     = KEYS[15]
local op        = ARGV[1]   -- set, unset, reset
local name      = ARGV[2]
local max       = ARGV[3]   -- '' keeps what is set, as for those that follow
local window    = ARGV[4]   -- ms
local burst     = ARGV[5]
local algorithm = ARGV[6]
local by        = ARGV[7]   -- '*' for none
local unit      = ARGV[8]   -- '*' for none
local mode      = ARGV[9]   -- live, shadow
local reason    = ARGV[10]
local rest      = 11        -- ARGV[rest...], four a key value with a rule of its own: value, max ('' takes it away), window, burst; of reset the key value
-- include num.lua
-- include settings.lua
-- include record.lua
-- include state.lua
local now = clock()
local own, field, value = settings(meta)
if field == 'layout' then return {'misconfigured', meta, field, value} end
-- include bucket.lua
-- include limits.lua
-- include leases.lua
local kept, wrong = read_state(state)
if not kept then return {'corrupt', state, wrong} end
-- include wake.lua
-- include audit.lua
local before = call('HGET', limits, name)
local old = before and limited.parse(name, before)
if op ~= 'set' and not before then return {'unknown', name} end
if #ARGV >= rest + 2000 then return {'refused', 'values', text(math.ceil((#ARGV - rest + 1) / 4)), ''} end
local sleeping = call('ZCARD', lines) > 0
local stale_lines = call('ZCARD', stale) > 0
call('ZCARD', uncounted)
call('HLEN', overrides)
call('HLEN', tally)
call('ZCARD', open)

-- What buckets were called that no limit has now, to 'algorithm by unit'. Those that a reset left behind are '- by unit': they are not
-- found again, and are noted only while jobs stand in their lines.
local former, drained = call('HGETALL', removed), {}

local function stands_in(bucket)
  return call('ZCARD', prefix .. 'lined:' .. bucket) > 0
end

for i = 1, #former, 2 do
  if string.sub(former[i + 1], 1, 2) == '- ' and not stands_in(former[i]) then table.insert(drained, former[i]) end
end

-- What the buckets of the limit are called from now on. Those of a removed one of the same rule (nil for none) are found again. Else
-- they get a name that none had before, since what is kept under that is another rule's, or was reset: the first the limit's
-- alone, later ones a number after it.
local function bucket_name(rule)
  local last
  local function consider(bucket)
    last = math.max(last or 0, whole(string.match(bucket, '~(%d+)$')) or 0)
  end
  if old then consider(old.bucket) end
  for i = 1, #former, 2 do
    if string.match(former[i], '^[^~]+') == name then
      if former[i + 1] == rule then return former[i] end
      consider(former[i])
    end
  end
  return last and name .. '~' .. text(math.max(now, last + 1)) or name
end

local function rule_of(limit, algorithm)
  return algorithm .. ' ' .. (limit.by or '*') .. ' ' .. (limit.unit or '*')
end

local count, uncounted_left = {}, false
local changes, drops = {}, {}   -- of overrides
local text_of, bucket, wipe
local noted   -- the rule under which the buckets that the limit has no longer are noted
if op == 'set' then
  local base = old or {algorithm = 'fixed_window', max = 0, window = 1000, burst = 0, shadow = false}
  if old then
    for _, fixed in ipairs({{'algorithm', algorithm, old.algorithm}, {'by', by, old.by or '*'}, {'unit', unit, old.unit or '*'}}) do
      if fixed[2] ~= '' and fixed[2] ~= fixed[3] then return {'refused', fixed[1], fixed[2], fixed[3]} end
    end
  end
  if algorithm == '' then algorithm = base.algorithm end
  if by == '' then by = base.by or '*' end
  if unit == '' then unit = base.unit or '*' end
  if max == '' then max = text(base.max) end
  if window == '' then window = text(base.window) end
  if burst == '' then burst = text(base.burst) end
  if mode == '' then mode = base.shadow and 'shadow' or 'live' end
  if algorithm == 'concurrency' then
    window = '1'
    if unit ~= '*' then return {'refused', 'unit', unit, '*'} end
  end
  local rule, field, value = rules.read(max, window, algorithm, burst)
  if not rule then return {'refused', field == 'duration' and 'window' or field, value or '', ''} end
  if rule.max == 0 then return {'refused', 'max', max, ''} end
  local bursts = algorithm == 'token_bucket' or algorithm == 'leaky_bucket'
  if rule.burst > 0 and not bursts then return {'refused', 'no burst', burst, algorithm} end
  local has = {}
  local n = old and old.overrides or 0
  for i = rest, #ARGV, 4 do
    local id = name .. ':' .. ARGV[i]
    if has[id] == nil then has[id] = call('HEXISTS', overrides, id) == 1 end
    if ARGV[i + 1] == '' then
      if has[id] then n = n - 1 end
      has[id] = false
      table.insert(drops, id)
    else
      local own_window = ARGV[i + 2] ~= '' and ARGV[i + 2] or window
      local own_burst = ARGV[i + 3] ~= '' and ARGV[i + 3] or '0'
      local own_rule, own_field, own_value = rules.read(ARGV[i + 1], own_window, algorithm, own_burst)
      if by == '*' then return {'refused', 'override', ARGV[i], 'by'} end
      if not own_rule then return {'refused', own_field == 'duration' and 'window' or own_field, own_value or '', ARGV[i]} end
      if own_rule.burst > 0 and not bursts then return {'refused', 'no burst', own_burst, algorithm} end
      if not has[id] then n = n + 1 end
      has[id] = true
      table.insert(changes, id)
      table.insert(changes, ARGV[i + 1] .. ' ' .. own_window .. ' ' .. own_burst)
    end
  end
  bucket = old and old.bucket or bucket_name(algorithm .. ' ' .. by .. ' ' .. unit)
  text_of = table.concat({bucket, algorithm, max, window, text(rule.burst), by, unit, mode, text(n), text(now), reason}, ' ')
  if algorithm == 'concurrency' and not old then
    -- It counts the leases that exist; what is more than a script may count at once is counted by the claims.
    local limit = limited.parse(name, text_of)
    local members = call('ZRANGE', active, '0', '999', 'WITHSCORES')
    for i = 1, #members, 2 do
      local record = tonumber(members[i + 1]) > now and read_header(string.match(members[i], '^[^|]*')) or ''
      if place_of(record) then table.insert(count, {members[i], members[i + 1], leased.count(members[i], record, {limit})}) end
    end
    uncounted_left = call('ZCARD', active) > 1000
  end
elseif op == 'unset' then
  for _, id in ipairs(call('HKEYS', overrides)) do
    if string.sub(id, 1, #name + 1) == name .. ':' then table.insert(drops, id) end
  end
  noted = old and rule_of(old, old.algorithm)
elseif old and old.algorithm == 'concurrency' then
  return {'refused', 'algorithm', 'concurrency', ''}
elseif old and old.by and not ARGV[rest] then
  -- All its buckets are whole at once when they are called by another name.
  noted = stands_in(old.bucket) and rule_of(old, '-')
  bucket = bucket_name()
  text_of = bucket .. string.sub(before, #old.bucket + 1)
elseif old then
  wipe = limited.bucket_id(old, old.by and ARGV[rest] or nil)
  call('EXISTS', limiter .. ':' .. wipe, prefix .. 'hold:' .. wipe)
else
  return {'refused', 'limit', before, ''}
end

-- What is made whole now is not given back again by the leases that took of it.
local forgotten = {}
if wipe then
  local stored = call('HGETALL', leases)
  for i = 1, #stored, 2 do
    local words, found = {}, false
    for word in string.gmatch(stored[i + 1], '%S+') do
      local bucket, rest_of_word = string.match(word, '^([^|]+)(|[^|]+|[^|]+|)')
      if bucket == wipe then
        word, found = bucket .. rest_of_word .. '0', true
      end
      table.insert(words, word)
    end
    if found then table.insert(forgotten, {stored[i], table.concat(words, ' ')}) end
  end
end

-- ---- Write ----
for _, lease_of in ipairs(forgotten) do call('HSET', leases, lease_of[1], lease_of[2]) end
if text_of then
  call('HSET', limits, name, text_of)
  call('HDEL', removed, bucket)
elseif op == 'unset' then
  call('HDEL', limits, name)
  call('HDEL', tally, 'shadow ' .. name)
else
  call('UNLINK', limiter .. ':' .. wipe, prefix .. 'hold:' .. wipe)
end
if noted then call('HSET', removed, old.bucket, noted) end
for _, former_bucket in ipairs(drained) do call('HDEL', removed, former_bucket) end
for i = 1, #changes, 2 do call('HSET', overrides, changes[i], changes[i + 1]) end
for _, id in ipairs(drops) do call('HDEL', overrides, id) end
leased.write(count)
if uncounted_left then call('ZUNIONSTORE', uncounted, '2', uncounted, active, 'AGGREGATE', 'MAX') end
-- All lines are judged anew, in steps by the claims.
if sleeping and stale_lines then
  call('ZUNIONSTORE', stale, '2', stale, lines)
  call('UNLINK', lines)
elseif sleeping then
  call('RENAME', lines, stale)
end
if not (own and own.layout) then call('HSET', meta, 'layout', '1') end
push_token()
local values = {}
for i = rest, audit_size and #ARGV or 0 do
  table.insert(values, 'value ' .. i - rest + 1)
  table.insert(values, ARGV[i])
end
record_audit('named', 'change', op, 'name', name, 'limit', text_of or '', 'reason', reason, unpack(values))
return {'set', now, before or ''}
