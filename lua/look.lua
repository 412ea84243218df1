#!lua flags=allow-oom
-- look says when a claim is worth making, in ms: 0 now, -1 nothing is known to come. For a process that watches over the queue it sees to
-- work that waits and that nobody answers for. For others it changes nothing.
local meta      = KEYS[1]
local state     = KEYS[2]
local limiter   = KEYS[3]
local limits    = KEYS[4]
local overrides = KEYS[5]
local closed    = KEYS[6]
local wait1     = KEYS[7]
local wait2     = KEYS[8]
local wait3     = KEYS[9]
local wait4     = KEYS[10]
local back      = KEYS[11]
local sent      = KEYS[12]
local lines     = KEYS[13]
local open      = KEYS[14]
local stale     = KEYS[15]
local delayed   = KEYS[16]
local active    = KEYS[17]
local uncounted = KEYS[18]
local wake      = KEYS[19]
local process   = ARGV[1]   -- who looks; '' for one that does not watch
local stance    = ARGV[2]   -- idle: it can claim itself; busy; leaving: it claims no more
local turn      = ARGV[3]   -- '1': the time that it was told to look at is there
local push      = tonumber(ARGV[4])   -- at least so many tokens are due if there is work: the caller took them, or saw before that nobody came
-- include num.lua
-- include settings.lua
-- include bucket.lua
-- include record.lua
-- include state.lua
local now = clock()
-- include limits.lua
-- include closed.lua
-- include basis.lua
-- include wake.lua
-- include watch.lua

local refused_for = math.max(own.max > 0 and buckets.wait(budget, 1) or 0, closed_for('queue'))
for _, limit in ipairs(named) do
  if limited.for_all(limit) and not limit.shadow then
    local b = limited.bucket(limit)
    if limited.broken then return limited.broken end
    refused_for = math.max(refused_for, buckets.wait(b, 1))
  end
end

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
  local waiting = call('EXISTS', wait1, wait2, wait3, wait4, back)
  if refused_for == 0 and waiting + call('EXISTS', sent, open, stale) > 0 then
    at(0)
  elseif waiting > 0 then
    at(refused_for)
  end
  local first = call('ZRANGE', lines, '0', '0', 'WITHSCORES')
  if first[2] then at(math.max(tonumber(first[2]) - now, refused_for)) end
  if call('EXISTS', uncounted) > 0 then at(0) end
end
if process == '' then return {'look', soonest, -1, 0, 0, 0} end

-- ---- Who answers for work that is there ----
local PATIENCE = 20             -- ms that a wake-up may take
local rang = kept.alarm > 0 and kept.alarm <= now and kept.alarm
local told = kept.want > 0 and math.min(kept.want, now) or rang
local waits = soonest == 0
local overdue = waits and (not told or now - told > PATIENCE or (rang and kept.holder == process))
local claims = overdue and stance == 'idle'
if waits and not claims and tokens == 0 and (overdue or push > 0) then
  push = math.max(1, math.min(push, 64))
else
  push = 0
end
watch.keep('want', waits and (told or now) or 0)
local alarm, look = -1, -1
if stance == 'leaving' then
  if watch.leave(process) and tokens == 0 then push = math.max(1, push) end -- for somebody to take it over
else
  local due = nil
  if not waits then due = soonest < 0 and 0 or now + soonest end
  watch.alarm(process, due)
  watch.deputize(process)
  local soon = waits and not claims and (overdue and push > 0 and 100 or not overdue and told + PATIENCE + 1 - now)
  alarm, look = watch.timers(process, turn == '1' and not soon)
  if soon and (turn == '1' or look >= 0) then look = soon end
end
for _ = 1, push do call('LPUSH', wake, '1') end
watch.write()
return {'look', soonest, alarm, look, claims and 1 or 0, (push > 0 and overdue) and push or 0}
