#!lua flags=allow-oom
-- close shuts the queue, or the jobs of a key value, until a time; or opens them again. A close never ends earlier than one before it.
local meta      = KEYS[1]
local state     = KEYS[2]
local closed    = KEYS[3]
local reasons   = KEYS[4]
local lines     = KEYS[5]
local open      = KEYS[6]
local stale     = KEYS[7]
local tally     = KEYS[8]
local wake      = KEYS[9]
local audit     = KEYS[10]
local op        = ARGV[1]   -- close, reopen
local key       = ARGV[2]   -- '' for the queue
local of        = ARGV[3]   -- the key's value
local when      = ARGV[4]   -- '+ms' from now, '@ms' at
local reason    = ARGV[5]
-- include num.lua
-- include settings.lua
-- include record.lua
-- include state.lua
local now = clock()
local own, field, value = settings(meta)
if field == 'layout' then return {'misconfigured', meta, field, value} end
-- include limits.lua
-- include closed.lua
-- include line.lua
local kept, wrong = read_state(state)
if not kept then return {'corrupt', state, wrong} end
-- include wake.lua
-- include audit.lua
local what = key == '' and 'queue' or key .. ':' .. of
local before = tonumber(call('ZSCORE', closed, what) or '0')
local over = call('ZRANGE', closed, '-inf', text(now), 'BYSCORE', 'LIMIT', '0', '128')
call('HLEN', reasons)
local till = before
if op == 'close' then
  till = tonumber(string.sub(when, 2))
  if string.sub(when, 1, 1) == '+' then till = now + till end
elseif key ~= '' then
  line.ready(closing.id(key, of))
end

-- ---- Write ----
for _, ended in ipairs(over) do
  call('ZREM', closed, ended)
  call('HDEL', reasons, ended)
end
if op == 'reopen' then
  call('ZREM', closed, what)
  call('HDEL', reasons, what)
  line.write()
  push_token()
elseif till > math.max(before, now) then
  call('ZADD', closed, text(till), what)
  call('HSET', reasons, what, text(till - now) .. '\n' .. reason)
end
if not (own and own.layout) then call('HSET', meta, 'layout', '1') end
record_audit('close', 'change', op, 'what', what, 'till', text(math.max(till, before)), 'reason', reason)
return {'set', now, before > now and text(before) or '0', text(math.max(till, before))}
