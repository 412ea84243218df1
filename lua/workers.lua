#!lua flags=no-writes
-- workers tells which worker processes said within a minute that they are there, and what each said, the last one first.
local workers = KEYS[1]
local prefix  = ARGV[1]
local most    = tonumber(ARGV[2])
-- include num.lua
local now = clock()
local reply = {'workers', now, call('ZCOUNT', workers, text(now - 60000), '+inf')}
local seen = call('ZREVRANGEBYSCORE', workers, '+inf', text(now - 60000), 'WITHSCORES', 'LIMIT', '0', text(most))
for i = 1, #seen, 2 do
  reply[#reply + 1] = seen[i]
  reply[#reply + 1] = seen[i + 1]
  reply[#reply + 1] = call('GET', prefix .. 'worker:' .. seen[i]) or ''
end
return reply
