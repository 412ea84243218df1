#!lua flags=no-writes
-- list reads one page of the jobs in a state: ids, with their time where they have one, and the head of their record.
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
local errors    = KEYS[12]
local state     = ARGV[1]
local from      = tonumber(ARGV[2])
local count     = tonumber(ARGV[3])
-- include num.lua
-- include record.lua
local now = clock()
local reply = {'page', now}

local function add(id, at)
  local head = call('GETRANGE', job_key(id), '0', '16383')
  local by = state == 'delayed' and call('ZSCORE', sent, id) and 'limit' or ''
  for _, value in ipairs({id, text(at), by, head, call('HGET', errors, id) or ''}) do table.insert(reply, value) end
end

local function add_set(set, first, limit)
  -- Kept results end by their own TTL and stay listed a while longer.
  if state == 'completed' then first = first + call('ZCOUNT', set, '-inf', '(' .. text(now)) end
  local members = call('ZRANGE', set, text(first), text(first + limit - 1), 'WITHSCORES')
  for i = 1, #members, 2 do
    add(string.match(members[i], '^[^|]*'), tonumber(members[i + 1]))
  end
end

if state == 'wait' then
  -- Jobs that came back stand at places among those of the lists: both are in order, so a page is their merge. At most all
  -- that came back stand before a job of the lists, so that many less than from are skipped in the lists unread.
  local came = call('ZRANGE', back, '0', text(from + count - 1), 'WITHSCORES')
  local next_came, at = 1, 0
  local unread = math.max(0, from - #came / 2)
  local function add_came(before)
    while next_came < #came and at < from + count and tonumber(came[next_came + 1]) < before do
      if at >= from then add(came[next_came], 0) end
      next_came, at = next_came + 2, at + 1
    end
  end
  for _, list in ipairs({wait1, wait2, wait3, wait4}) do
    if at >= from + count then break end
    local skip = math.min(call('LLEN', list), unread)
    unread, at = unread - skip, at + skip
    for _, id in ipairs(call('LRANGE', list, text(skip), text(skip + from + count - at - 1))) do
      if at >= from + count then break end
      if #came > 0 then
        add_came(place_of(call('GETRANGE', job_key(id), '0', tostring(HEAD - 1))) or 0)
      end
      if at >= from and at < from + count then add(id, 0) end
      at = at + 1
    end
  end
  add_came(math.huge)
else
  add_set(({delayed = delayed, active = active, dead = dead, completed = completed})[state], from, count)
end
return reply
