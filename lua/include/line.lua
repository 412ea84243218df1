-- Lines: the jobs that a bucket refused, waiting for it in order of place, in the sorted set line:<bucket>. A line is asleep
-- until the ms at which its head may be granted (in the set lines), or open (in the set open, by the place of its head), or
-- stale: a limit was changed since, and it is judged anew as if it were open. A table of the line's state is changed in memory
-- and written once.
local lined = {} -- jobs in the lines of each limit
local line = lazily(function(line)
  -- The head's place and id; nil for an empty line.
  function line.head(l)
    while not l.ended or l.at <= #l.members do
      if l.at > #l.members then
        local size = l.read == 0 and 2 or 64
        local some = call('ZRANGE', l.key, text(l.read), text(l.read + size - 1), 'WITHSCORES')
        l.read, l.ended, l.members, l.at = l.read + size, #some < 2 * size, some, 1
      elseif l.gone[l.members[l.at]] then
        l.at = l.at + 2
      else
        break
      end
    end
    local id, place = l.members[l.at], tonumber(l.members[l.at + 1])
    local first = l.first
    if first and not (place and place < first[1]) then return first[1], first[2] end
    return place, id
  end

  -- The line of a bucket. where is asleep, open or stale when that is known.
  function line.of(bucket, where, wake)
    local l = line.by[bucket]
    if l then return l end
    l = {bucket = bucket, limit = string.match(bucket, '^[^:]+'), key = prefix .. 'line:' .. bucket, members = {}, at = 1, read = 0,
      gone = {}, left = {}, added = {}, where = where, wake = wake, ended = not line.some}
    line.by[bucket] = l
    line.list[#line.list + 1] = l
    if line.some and not where and line.head(l) then
      wake = call('ZSCORE', lines, bucket)
      l.wake = tonumber(wake or '0')
      l.where = wake and 'asleep' or call('ZSCORE', open, bucket) and 'open' or 'stale'
    end
    l.was = l.where
    return l
  end

  -- A line is read before it is written, the counts of its limit too.
  function line.touch(l)
    if not l.touched then
      l.touched = true
      call('ZCARD', l.key)
      call('ZSCORE', prefix .. 'lined:' .. l.limit, l.bucket)
      lined[l.limit] = lined[l.limit] or whole(call('HGET', tally, 'line ' .. l.limit)) or 0
    end
  end

  function line.leave(l, id)
    line.touch(l)
    for i, job in ipairs(l.added) do
      if job[2] == id then
        table.remove(l.added, i)
        l.first = nil
        for _, other in ipairs(l.added) do
          if not l.first or other[1] < l.first[1] then l.first = other end
        end
        return
      end
    end
    l.gone[id] = true
    table.insert(l.left, id)
  end

  function line.join(l, place, id)
    line.touch(l)
    local job = {place, id}
    table.insert(l.added, job)
    if not l.first or place < l.first[1] then l.first = job end
  end

  -- Lets the line sleep until a time, or lets its head be judged.
  function line.sleep(l, wake)
    line.touch(l)
    l.where, l.wake = 'asleep', wake
  end

  function line.open(l)
    line.touch(l)
    l.where = 'open'
  end

  -- Takes out a job that is in no order: its line is judged anew, since its head may be another one.
  function line.pull(l, id)
    line.leave(l, id)
    l.where = 'open'
  end

  -- What happened to the line of a bucket that has more to give: returns whether jobs stand in it.
  function line.ready(bucket)
    local l = line.of(bucket)
    local stands = line.head(l) ~= nil
    if stands then line.open(l) end
    return stands
  end

  -- The ms at which the first of the lines that are asleep wakes; nil for none. woken is how many of the first are no longer so.
  function line.next(woken)
    local first = call('ZRANGE', lines, text(woken), text(woken), 'WITHSCORES')
    local at = tonumber(first[2])
    for _, l in ipairs(line.list) do
      if l.touched and l.where == 'asleep' and (not at or l.wake < at) and line.head(l) then at = l.wake end
    end
    return at
  end

  local function in_parts(command, key, values)
    for i = 1, #values, 4000 do
      call(command, key, unpack(values, i, math.min(i + 3999, #values)))
    end
  end

  function line.write()
    local sets = {asleep = lines, open = open, stale = stale}
    local put, drop = {asleep = {}, open = {}, stale = {}}, {asleep = {}, open = {}, stale = {}}
    -- All heads are known before the first line is written.
    for _, l in ipairs(line.list) do
      if l.touched then
        local place = line.head(l)
        if not place then l.where = nil end
        if l.where then
          table.insert(put[l.where], text(l.where == 'asleep' and l.wake or place))
          table.insert(put[l.where], l.bucket)
        end
        if l.was and l.was ~= l.where then table.insert(drop[l.was], l.bucket) end
      end
    end
    for where, set in pairs(sets) do
      in_parts('ZADD', set, put[where])
      in_parts('ZREM', set, drop[where])
    end
    local moved = {}
    for _, l in ipairs(line.list) do
      if l.touched then
        local joined = {}
        for _, job in ipairs(l.added) do
          table.insert(joined, text(job[1]))
          table.insert(joined, job[2])
        end
        in_parts('ZREM', l.key, l.left)
        in_parts('ZADD', l.key, joined)
        local change = #l.added - #l.left
        if change ~= 0 then
          local counts = prefix .. 'lined:' .. l.limit
          if tonumber(call('ZINCRBY', counts, text(change), l.bucket)) <= 0 then call('ZREM', counts, l.bucket) end
          lined[l.limit] = math.max(0, lined[l.limit] + change)
          moved[l.limit] = true
        end
      end
    end
    for limit in pairs(moved) do
      if lined[limit] > 0 then
        call('HSET', tally, 'line ' .. limit, text(lined[limit]))
      else
        call('HDEL', tally, 'line ' .. limit)
      end
    end
  end
end)
line.list, line.by = {}, {}
line.some = call('EXISTS', lines, open, stale) > 0 and call('ZCARD', lines) + call('ZCARD', open) + call('ZCARD', stale) > 0

-- Were there lines, or are there any now?
function line.known()
  return line.some or #line.list > 0
end
