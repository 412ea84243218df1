#!lua flags=no-writes
-- preflight says which commands the user of the connection may not run on the keys of a queue. It runs none of them.
local meta      = KEYS[1]
local rest      = 1   -- ARGV[rest...]: names of commands
-- include num.lua
local key = string.sub(meta, 1, -5) .. 'job:preflight'
local shapes = { -- of those whose words are not the key and a value
  TIME = {'TIME'}, EXISTS = {'EXISTS', key}, MGET = {'MGET', key}, UNLINK = {'UNLINK', key}, BLPOP = {'BLPOP', key, '1'},
  RENAME = {'RENAME', key, key}, ZUNIONSTORE = {'ZUNIONSTORE', key, '1', key},
}
local reply = {'missing'}
for i = rest, #ARGV do
  local words = shapes[ARGV[i]] or {ARGV[i], key, '1'}
  if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(words)) then table.insert(reply, ARGV[i]) end
end
return reply
