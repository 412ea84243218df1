#!lua flags=allow-oom
-- extend moves the ends of leases that have not ended, and of their places under concurrency limits; it says which have.
local meta      = KEYS[1]
local active    = KEYS[2]
local limiter   = KEYS[3]
local leases    = KEYS[4]
local audit     = KEYS[5]
local lease     = tonumber(ARGV[1])
local rest      = 2         -- ARGV[rest...], two a job: id, token
-- include num.lua
-- include settings.lua
-- include leases.lua
local now = clock()
settings(meta)
-- include audit.lua
local members = {}
for i = rest, #ARGV, 2 do table.insert(members, ARGV[i] .. '|' .. ARGV[i + 1]) end
local ends = call('ZMSCORE', active, unpack(members))
local answers, held, extended = {}, {}, {}
for n, member in ipairs(members) do
  if ends[n] and tonumber(ends[n]) > now then
    table.insert(answers, 'd')
    table.insert(held, text(now + lease))
    table.insert(held, member)
    table.insert(extended, member)
  else
    table.insert(answers, 'l')
  end
end
local words, places = leased.read(extended), {}
for _, member in ipairs(extended) do places[member] = leased.readable_places(words[member]) end
if #held > 0 then call('ZADD', active, unpack(held)) end
for _, member in ipairs(extended) do
  for _, bucket in ipairs(places[member]) do call('ZADD', limiter .. ':' .. bucket, 'XX', text(now + lease), member) end
end
if audit_size and #extended > 0 then
  local ids = {}
  for i, member in ipairs(extended) do ids[i] = string.match(member, '^[^|]+') end
  record_audit('extend', 'ids', table.concat(ids, ' '), 'lease', text(lease))
end
return {'extended', table.concat(answers)}
