#!lua flags=allow-oom
-- pause stops the claim from granting, or lets it go on: '1' or '0'.
local meta      = KEYS[1]
local state     = KEYS[2]
local wake      = KEYS[3]
local audit     = KEYS[4]
local paused    = ARGV[1]
local reason    = ARGV[2]
-- include num.lua
-- include settings.lua
-- include state.lua
local now = clock()
local was, layout = unpack(call('HMGET', meta, 'paused', 'layout'))
if layout and layout ~= '1' then return {'misconfigured', meta, 'layout', layout} end
local own = settings(meta)
local kept, wrong = read_state(state)
if not kept then return {'corrupt', state, wrong} end
-- include wake.lua
-- include audit.lua
if paused == '1' then
  call('HSET', meta, 'layout', '1', 'paused', '1', 'paused_reason', reason, 'paused_at', text(now))
else
  call('HDEL', meta, 'paused', 'paused_reason', 'paused_at')
  push_token()
end
record_audit('pause', 'paused', paused, 'reason', reason)
return {'set', (was and was ~= '' and was ~= '0') and 1 or 0}
