-- Commands, and numbers: exact integers up to 2^53-1, read by pattern (tonumber takes '0x10', ' 5 ', 'nan') and written in full.

-- Runs a command on a key. Where the key is of another type the error says so: WRONGKEY <command> <type> <key>;
local run, type = redis.pcall, type
local function call(command, key, ...)
  local answer = run(command, key, ...)
  if type(answer) == 'table' and answer.err then
    if string.find(answer.err, '^WRONGTYPE') then
      answer = redis.error_reply('WRONGKEY ' .. command .. ' ' .. redis.call('TYPE', key).ok .. ' ' .. key .. ';')
    end
    error(answer)
  end
  return answer
end

-- A table of functions, beside fields of its own, that are made when the first of them is asked for: making all that a script may need
-- takes longer than most calls of it do.
local made_later = {__index = function(self, name)
  local make = rawget(self, 1)
  self[1] = nil
  setmetatable(self, nil)
  make(self)
  return self[name]
end}

local function lazily(make, fields)
  fields = fields or {}
  fields[1] = make
  return setmetatable(fields, made_later)
end

local MOST = 9007199254740991

local function text(n)
  return string.format('%.0f', n)
end

-- The integer that s spells in plain digits (no sign, no leading zero), or nil. The counts of many buckets are often the same.
local known = {['0'] = 0}
local function whole(s)
  if not s then return nil end
  local n = known[s]
  if n then return n end
  if #s > 16 or not string.find(s, '^[1-9]%d*$') then return nil end
  n = tonumber(s)
  if n > MOST then return nil end
  known[s] = n
  return n
end

-- Server time in ms. Read once per script and passed along.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
