#!lua flags=allow-oom
-- extend moves the deadline of leases that have not ended; it says which have.
local active    = KEYS[1]
local lease     = tonumber(ARGV[1])
local rest      = 2         -- ARGV[rest...], two a job: id, token
-- include num.lua
local now = clock()
local members = {}
for i = rest, #ARGV, 2 do table.insert(members, ARGV[i] .. '|' .. ARGV[i + 1]) end
local ends = call('ZMSCORE', active, unpack(members))
local answers, held = {}, {}
for n, member in ipairs(members) do
  if ends[n] and tonumber(ends[n]) > now then
    table.insert(answers, 'd')
    table.insert(held, text(now + lease))
    table.insert(held, member)
  else
    table.insert(answers, 'l')
  end
end
if #held > 0 then call('ZADD', active, unpack(held)) end
return {'extended', table.concat(answers)}
