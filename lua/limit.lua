#!lua flags=allow-oom
-- limit sets, changes or lifts the queue's own limit, or makes its budget whole. What was used stays used; what is allowed
-- changes at once. Another algorithm starts whole.
local meta      = KEYS[1]
local state     = KEYS[2]
local limiter   = KEYS[3]
local wake      = KEYS[4]
local audit     = KEYS[5]
local op        = ARGV[1]   -- set, lift, reset
local max       = ARGV[2]
local duration  = ARGV[3]   -- ms; '' keeps what is set, as for those that follow
local algorithm = ARGV[4]
local burst     = ARGV[5]
local reason    = ARGV[6]
-- include num.lua
-- include settings.lua
-- include state.lua
local now = clock()
local old = call('HMGET', meta, 'max', 'duration', 'algorithm', 'burst', 'layout')
if old[5] and old[5] ~= '1' then return {'misconfigured', meta, 'layout', old[5]} end
settings(meta)
local kept, wrong = read_state(state)
if not kept then return {'corrupt', state, wrong} end
-- include wake.lua
-- include audit.lua
local kind = call('TYPE', limiter).ok
local left = call('PTTL', limiter)
if op == 'set' then
  -- What is set and makes no sense is mended, not kept.
  local was = rules.algorithms[old[3]] and old[3] or 'fixed_window'
  local now_is = algorithm ~= '' and algorithm or was
  local anew = now_is ~= was
  if burst == '' then burst = not anew and whole(old[4]) and old[4] or false end
  if duration == '' then duration = (whole(old[2]) or 0) > 0 and old[2] or '1000' end
  local own, field, value = rules.read(max, duration, now_is, burst)
  if own and own.algorithm == 'concurrency' then own, field, value = nil, 'algorithm', algorithm end
  if own and own.burst > 0 and now_is ~= 'token_bucket' and now_is ~= 'leaky_bucket' then own, field, value = nil, 'burst', burst end
  if not own then return {'refused', field, value} end
  local stopped = kind == 'string' and call('GET', limiter) == '9007199254740991'

  call('HSET', meta, 'max', max, 'duration', text(own.duration))
  if algorithm ~= '' then
    call('HSET', meta, 'algorithm', algorithm)
  elseif was ~= old[3] then
    call('HDEL', meta, 'algorithm')
  end
  if burst then
    call('HSET', meta, 'burst', burst)
  else
    call('HDEL', meta, 'burst')
  end
  if anew then
    call('UNLINK', limiter)
  elseif now_is == 'fixed_window' and left > own.duration and not stopped then
    -- A window that is running ends no later than the new length from now.
    call('PEXPIRE', limiter, text(own.duration))
  end
elseif op == 'lift' then
  call('HDEL', meta, 'max', 'duration', 'algorithm', 'burst')
else
  call('UNLINK', limiter)
end
call('HSET', meta, 'layout', '1', 'limit_reason', reason, 'limit_at', text(now))
push_token()
record_audit('limit', 'change', op, 'max', max, 'duration', duration, 'algorithm', algorithm, 'burst', burst or '', 'reason', reason)
return {'set', now, old[1] or '', old[2] or '', old[3] or '', old[4] or ''}
