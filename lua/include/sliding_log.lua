-- Sliding log: a sorted set with one member for each unit, a sequence number of 16 digits, scored by the ms in which the unit
-- was taken. A unit counts for one window from then on.
--
-- In memory the stored units that count lose `dropped` of the oldest and `removed` of the newest, and gain `added`.
local sliding_log = lazily(function(sliding_log)
  local LOG_MEMBER = '^[0-8]' .. string.rep('%d', 15) .. '$'

  local function log_count(b)
    b.count = b.stored - b.dropped - b.removed + b.added
    b.free = math.max(0, b.max - b.count)
  end

  -- The time of the stored unit with this rank; -1 is the newest.
  local function log_time(b, rank)
    if b.rebased then return b.now end
    return math.ceil(tonumber(call('ZRANGE', b.key, text(rank), text(rank), 'WITHSCORES')[2]))
  end

  function sliding_log.read(b)
    b.stamp, b.sequence = b.now, 0 -- stamp: the time of units taken now
    b.stored, b.dropped, b.removed, b.added = 0, 0, 0, 0
    local last = call('ZREVRANGE', b.key, '0', '0', 'WITHSCORES')
    if last[1] then
      local newest = whole(last[2])
      if not newest or not string.find(last[1], LOG_MEMBER) then return nil, last[1] .. ' ' .. last[2] end
      b.sequence, b.newest, b.stamp = tonumber(last[1]), newest, math.max(b.now, newest)
      b.stored = call('ZCOUNT', b.key, '(' .. text(b.stamp - b.window), '+inf')
      if newest - b.now > b.window then -- the clock stepped back: as if all had been taken now
        b.rebased, b.newest, b.stamp, b.repair = true, b.now, b.now, true
      end
    end
    log_count(b)
    if last[1] and call('PTTL', b.key) < sliding_log.reset_in(b) then b.repair = true end
    return true
  end

  function sliding_log.wait(b, n)
    local position = b.dropped + b.count + n - b.max -- of the unit that must be free again, from the oldest
    local time = b.stamp
    if position <= b.stored - b.removed then time = log_time(b, position - b.stored - 1) end
    return b.window - (b.now - time)
  end

  -- The number and the time of the first unit taken now.
  function sliding_log.mark(b)
    local again = b.rebased and b.stored - b.dropped - b.removed or 0
    return text(b.sequence + again + b.added + 1) .. ':' .. text(b.stamp)
  end

  function sliding_log.spend(b, n)
    b.added = b.added + n
    log_count(b)
  end

  -- Takes back the newest.
  function sliding_log.refund(b, n)
    local back = math.min(n, b.count)
    local added = math.min(back, b.added)
    b.added, b.removed = b.added - added, b.removed + back - added
    log_count(b)
  end

  -- All units of a charge are of one time, so of them max decide and no more are kept.
  function sliding_log.charge(b, n)
    sliding_log.spend(b, math.max(0, math.min(n, b.max - b.added)))
  end

  -- Exactly the units that were taken then: their numbers, at their time.
  function sliding_log.give_back(b, n, mark, units)
    local first, stamp = string.match(mark, '^(%d+):(%d+)$')
    first, stamp = whole(first), whole(stamp)
    if not (first and stamp) or b.rebased or stamp <= b.stamp - b.window then return end
    b.returned = b.returned or {}
    local last = first + units - 1
    for from = last, math.max(first, last - n + 1), -1000 do
      local members = {}
      for i = from, math.max(first, last - n + 1, from - 999), -1 do members[#members + 1] = string.format('%016.0f', i) end
      for i, score in ipairs(call('ZMSCORE', b.key, unpack(members))) do
        if score and tonumber(score) == stamp then table.insert(b.returned, members[i]) end
      end
    end
    b.stored = math.max(0, b.stored - #b.returned)
    log_count(b)
  end

  -- Only the newest max decide, so the log of a caller that hammers grows no further.
  function sliding_log.deny(b, n)
    sliding_log.spend(b, n)
    b.dropped = b.dropped + math.max(0, b.count - b.max)
    log_count(b)
  end

  function sliding_log.reset_in(b)
    if b.count == 0 then return 0 end
    local newest = b.stamp
    if b.added == 0 then newest = b.removed == 0 and b.newest or log_time(b, -1 - b.removed) end
    return b.window - (b.now - newest)
  end

  function sliding_log.write(b)
    if b.returned then
      for i = 1, #b.returned, 4000 do call('ZREM', b.key, unpack(b.returned, i, math.min(i + 3999, #b.returned))) end
    end
    if not b.repair and b.added + b.removed == 0 then return end
    local reset, add = sliding_log.reset_in(b), b.added
    if b.rebased then
      call('UNLINK', b.key)
      add = b.count
    else
      call('ZREMRANGEBYSCORE', b.key, '-inf', text(b.stamp - b.window))
      if b.dropped > 0 then call('ZREMRANGEBYRANK', b.key, '0', text(b.dropped - 1)) end
      if b.removed > 0 then call('ZREMRANGEBYRANK', b.key, text(-b.removed), '-1') end
    end
    for first = 1, add, 2000 do
      local members = {}
      for i = first, math.min(add, first + 1999) do
        members[#members + 1] = text(b.stamp)
        members[#members + 1] = string.format('%016.0f', b.sequence + i)
      end
      call('ZADD', b.key, unpack(members))
    end
    if reset > 0 then call('PEXPIRE', b.key, text(reset)) end
  end
end)
