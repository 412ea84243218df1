#!lua flags=allow-oom
-- mend puts right what no script leaves behind: jobs that stand nowhere, lines that no claim looks at or that are counted wrong, places
-- and leases that belong to no active job. What is as it should be stays. With '0' it tells only what it would do.
local meta      = KEYS[1]
local state     = KEYS[2]
local limiter   = KEYS[3]
local limits    = KEYS[4]
local removed   = KEYS[5]
local lines     = KEYS[6]
local open      = KEYS[7]
local stale     = KEYS[8]
local tally     = KEYS[9]
local back      = KEYS[10]
local sent      = KEYS[11]
local delayed   = KEYS[12]
local active    = KEYS[13]
local leases    = KEYS[14]
local dead      = KEYS[15]
local completed = KEYS[16]
local wait1     = KEYS[17]
local wait2     = KEYS[18]
local wait3     = KEYS[19]
local wait4     = KEYS[20]
local wake      = KEYS[21]
local audit     = KEYS[22]
local fix       = ARGV[1]
local rest      = 2         -- ARGV[rest...]: kind, name, bucket: job, id, ''; line, bucket, ''; lease, id|token, bucket or '' for the hash leases
-- include num.lua
-- include settings.lua
-- include record.lua
-- include state.lua
-- include limits.lua
-- include where.lua
local now = clock()
local own, field, value = settings(meta)
if field == 'layout' then return {'misconfigured', meta, field, value} end
local kept, wrong = read_state(state)
if not kept then return {'corrupt', state, wrong} end
-- include wake.lua
-- include audit.lua
local lists = {wait1, wait2, wait3, wait4}
for _, list in ipairs(lists) do call('LLEN', list) end
call('ZCARD', sent)
call('HLEN', leases)

local running -- the ids of active jobs
local function is_active(id)
  if not running then
    running = {}
    for _, member in ipairs(call('ZRANGE', active, '0', '-1')) do running[string.match(member, '^[^|]*')] = true end
  end
  return running[id] ~= nil
end

-- where goes by the order of the lists; here each is searched.
local function stands_nowhere(id, record, place)
  local at = where(id, record, now)
  if at ~= 'wait' and at ~= 'active' or call('ZSCORE', back, id) or call('ZSCORE', completed, id) then return false end
  return not (is_active(id) or call('LPOS', lists[math.floor(place / 1125899906842624)], id))
end

local jobs, enlist, strike, recount, drop = {}, {}, {}, {}, {}
local more = {} -- jobs that the lines of a limit hold beside those that are counted
local function judge_line(bucket)
  local limit = string.match(bucket, '^[^:]+')
  local length = call('ZCARD', prefix .. 'line:' .. bucket)
  local counted = tonumber(call('ZSCORE', prefix .. 'lined:' .. limit, bucket) or '0')
  local listed = call('ZSCORE', lines, bucket) or call('ZSCORE', open, bucket) or call('ZSCORE', stale, bucket)
  local before = more[limit]
  if not before then
    before = 0
    for i, score in ipairs(call('ZRANGE', prefix .. 'lined:' .. limit, '0', '-1', 'WITHSCORES')) do
      if i % 2 == 0 then before = before + tonumber(score) end
    end
    before = before - (whole(call('HGET', tally, 'line ' .. limit)) or 0)
  end
  more[limit] = before + length - counted
  local done = before ~= 0 and 'counted' or 'fine'
  if counted ~= length then
    table.insert(recount, {prefix .. 'lined:' .. limit, bucket, length})
    done = 'counted'
  end
  if length > 0 and not listed then
    table.insert(enlist, bucket)
    done = 'listed'
  elseif length == 0 and listed then
    table.insert(strike, bucket)
    done = 'unlisted'
  end
  return done
end

local reply = {'mended'}
local seen = {}
for i = rest, #ARGV, 3 do
  local kind, name, bucket = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local done = seen[kind .. name .. '|' .. bucket] or 'fine'
  if done ~= 'fine' then
    -- it is judged
  elseif kind == 'line' then
    done = judge_line(name)
  elseif kind == 'job' then
    local record = read_header(name)
    local place = place_of(record)
    if not place then
      done = 'unknown'
    elseif stands_nowhere(name, record, place) then
      table.insert(jobs, {place, name})
      done = 'restored'
    end
  elseif not call('ZSCORE', active, name) then
    local holds
    if bucket == '' then
      holds = call('HEXISTS', leases, name) == 1
    else
      holds = call('ZSCORE', limiter .. ':' .. bucket, name)
    end
    if holds then
      table.insert(drop, {name, bucket})
      done = 'dropped'
    end
  end
  seen[kind .. name .. '|' .. bucket] = done
  table.insert(reply, done)
end
if fix ~= '1' then return reply end

local restored, leased = {}, {}
for n, job in ipairs(jobs) do
  restored[n] = job[2]
  call('ZREM', sent, job[2])
  call('ZADD', back, text(job[1]), job[2])
end
for _, bucket in ipairs(enlist) do call('ZADD', stale, '0', bucket) end
for _, bucket in ipairs(strike) do
  for _, set in ipairs({lines, open, stale}) do call('ZREM', set, bucket) end
end
for _, one in ipairs(recount) do
  if one[3] > 0 then
    call('ZADD', one[1], text(one[3]), one[2])
  else
    call('ZREM', one[1], one[2])
  end
end
local counted = {}
for limit, n in pairs(more) do
  if n ~= 0 then
    table.insert(counted, limit)
    n = n + (whole(call('HGET', tally, 'line ' .. limit)) or 0)
    if n > 0 then
      call('HSET', tally, 'line ' .. limit, text(n))
    else
      call('HDEL', tally, 'line ' .. limit)
    end
  end
end
for n, one in ipairs(drop) do
  leased[n] = one[1]
  if one[2] == '' then
    call('HDEL', leases, one[1])
  else
    call('ZREM', limiter .. ':' .. one[2], one[1])
  end
end
if #jobs + #enlist + #drop > 0 then push_token() end
if #jobs + #enlist + #strike + #recount + #counted + #drop > 0 then
  record_audit('mend', 'ids', table.concat(restored, ' '), 'lines', table.concat(enlist, ' '), 'leases', table.concat(leased, ' '))
end
return reply
