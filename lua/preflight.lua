#!lua flags=no-writes
-- preflight says which commands the user of the connection may not run on any of a queue's keys. It runs none of them. Which key a command
-- is for it does not know: a user may be granted each kind of key by a selector of its own.
local meta      = KEYS[1]
local rest      = 1   -- ARGV[rest...]: names of commands
-- include num.lua
local prefix = string.sub(meta, 1, -5)
local kinds = {'job:preflight', 'state', 'wait:1', 'wake', 'limiter', 'meta', 'limits', 'closed', 'leases', 'tally', 'active', 'errors', 'hold:preflight',
  'line:preflight', 'settled:preflight'}
local shapes = { -- of those whose words are not the key and a value: how often the key comes, and what comes before and after
  TIME = {0}, EXISTS = {1}, MGET = {1}, UNLINK = {1}, BLPOP = {1, after = '1'}, RENAME = {2}, ZUNIONSTORE = {2, between = '1'},
}
local function words(name, key)
  local shape = shapes[name] or {1, after = '1'}
  local all = {name}
  for n = 1, shape[1] do
    if n == 2 and shape.between then table.insert(all, shape.between) end
    table.insert(all, key)
  end
  table.insert(all, shape.after)
  return unpack(all)
end
local reply = {'missing'}
for i = rest, #ARGV do
  local may = not redis.acl_check_cmd
  for _, kind in ipairs(kinds) do
    may = may or redis.acl_check_cmd(words(ARGV[i], prefix .. kind))
  end
  if not may then table.insert(reply, ARGV[i]) end
end
return reply
