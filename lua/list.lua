#!lua flags=no-writes
-- list reads one page of the jobs in a state: ids, with their time where they have one, and the head of their record.
local meta      = KEYS[1]
local wait1     = KEYS[2]
local wait2     = KEYS[3]
local wait3     = KEYS[4]
local wait4     = KEYS[5]
local back      = KEYS[6]
local sent      = KEYS[7]
local lines     = KEYS[8]
local open      = KEYS[9]
local stale     = KEYS[10]
local delayed   = KEYS[11]
local active    = KEYS[12]
local dead      = KEYS[13]
local completed = KEYS[14]
local errors    = KEYS[15]
local state     = ARGV[1]
local from      = tonumber(ARGV[2])
local count     = tonumber(ARGV[3])
-- include num.lua
-- include record.lua
local now = clock()
local reply = {'page', now}

local function add(id, at, bucket)
  local by = state == 'delayed' and (bucket or call('ZSCORE', sent, id)) and 'limit' or ''
  for _, value in ipairs({id, text(at), by, bucket or '', read_header(id), call('HGET', errors, id) or ''}) do table.insert(reply, value) end
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
        add_came(place_of(head_of(id)) or 0)
      end
      if at >= from and at < from + count then add(id, 0) end
      at = at + 1
    end
  end
  add_came(math.huge)
elseif state == 'delayed' and from + count > call('ZCARD', delayed) then
  -- Those with a due time first, then the lines: the open ones, then by the time at which they are judged.
  local unread = math.max(0, from - call('ZCARD', delayed))
  if from < call('ZCARD', delayed) then add_set(delayed, from, count) end
  local left = count - (#reply - 2) / 6
  for _, set in ipairs({open, stale, lines}) do
    local first = 0
    while left > 0 do
      local buckets = call('ZRANGE', set, text(first), text(first + 999), 'WITHSCORES')
      if #buckets == 0 then break end
      first = first + 1000
      for i = 1, #buckets, 2 do
        if left <= 0 then break end
        local key = prefix .. 'line:' .. buckets[i]
        local size = call('ZCARD', key)
        if unread < size then
          for _, id in ipairs(call('ZRANGE', key, text(unread), text(unread + left - 1))) do
            add(id, set == lines and math.max(now, tonumber(buckets[i + 1])) or now, buckets[i])
            left = left - 1
          end
        end
        unread = math.max(0, unread - size)
      end
    end
  end
else
  add_set(({delayed = delayed, active = active, dead = dead, completed = completed})[state], from, count)
end
return reply
