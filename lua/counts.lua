#!lua flags=no-writes
-- counts tells how many jobs are in each state. Delayed counts those with a due time and those in lines; sent says how many of
-- them a limit sent back.
local meta      = KEYS[1]
local wait1     = KEYS[2]
local wait2     = KEYS[3]
local wait3     = KEYS[4]
local wait4     = KEYS[5]
local back      = KEYS[6]
local sent      = KEYS[7]
local tally     = KEYS[8]
local delayed   = KEYS[9]
local active    = KEYS[10]
local dead      = KEYS[11]
local completed = KEYS[12]
-- include num.lua
local now = clock()
local waiting = call('LLEN', wait1) + call('LLEN', wait2) + call('LLEN', wait3) + call('LLEN', wait4) + call('ZCARD', back)
local paused = call('HGET', meta, 'paused')
local lined, tallied = 0, call('HGETALL', tally)
for i = 1, #tallied, 2 do
  if string.sub(tallied[i], 1, 5) == 'line ' then lined = lined + (whole(tallied[i + 1]) or 0) end
end
return {'counts', now, waiting, call('ZCARD', active), call('ZCARD', delayed) + lined, call('ZCARD', sent) + lined, call('ZCARD', dead),
  call('ZCOUNT', completed, text(now), '+inf'), (paused and paused ~= '' and paused ~= '0') and 1 or 0}
