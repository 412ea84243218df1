#!lua flags=allow-oom
-- limit sets, changes or lifts the queue's own limit. What was used stays used; what is allowed changes at once.
local meta      = KEYS[1]
local limiter   = KEYS[2]
local wake      = KEYS[3]
local audit     = KEYS[4]
local max       = ARGV[1]   -- 0 lifts the limit
local duration  = ARGV[2]   -- ms; '' keeps what is set
local reason    = ARGV[3]
-- include num.lua
-- include settings.lua
-- include window.lua
local now = clock()
local old = call('HMGET', meta, 'max', 'duration', 'layout')
if old[3] and old[3] ~= '1' then return {'misconfigured', meta, 'layout', old[3]} end
if not whole(max) then return {'misconfigured', meta, 'max', max} end
if duration ~= '' and (whole(duration) or 0) < 1 then return {'misconfigured', meta, 'duration', duration} end
local own = settings(meta)
local length = whole(duration ~= '' and duration or old[2] or '1000')
local left = call('PTTL', limiter)
local stopped = left > 0 and call('TYPE', limiter).ok == 'string' and call('GET', limiter) == '9007199254740991'
-- include wake.lua
-- include audit.lua
if max == '0' then
  call('HDEL', meta, 'max', 'duration', 'algorithm', 'burst')
else
  call('HSET', meta, 'max', max)
  if duration ~= '' then call('HSET', meta, 'duration', duration) end
  if not own then call('HDEL', meta, 'algorithm') end
  -- A window that is running ends no later than the new length from now.
  if length and left > length and not stopped then call('PEXPIRE', limiter, text(length)) end
end
call('HSET', meta, 'layout', '1', 'limit_reason', reason, 'limit_at', text(now))
push_token()
record_audit('limit', 'max', max, 'duration', duration, 'reason', reason)
return {'set', now, old[1] or '', old[2] or ''}
