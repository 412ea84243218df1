#!lua flags=no-writes
-- counts tells how many jobs are in each state. Delayed counts those with a due time; sent says how many of them a limit
-- sent back.
local meta      = KEYS[1]
local wait1     = KEYS[2]
local wait2     = KEYS[3]
local wait3     = KEYS[4]
local wait4     = KEYS[5]
local back      = KEYS[6]
local sent      = KEYS[7]
local delayed   = KEYS[8]
local active    = KEYS[9]
local dead      = KEYS[10]
local completed = KEYS[11]
-- include num.lua
local now = clock()
local waiting = call('LLEN', wait1) + call('LLEN', wait2) + call('LLEN', wait3) + call('LLEN', wait4) + call('ZCARD', back)
local paused = call('HGET', meta, 'paused')
return {'counts', now, waiting, call('ZCARD', active), call('ZCARD', delayed), call('ZCARD', sent), call('ZCARD', dead),
  call('ZCOUNT', completed, text(now), '+inf'), (paused and paused ~= '' and paused ~= '0') and 1 or 0}
