-- A server clock that stepped back: what lies further ahead than its own length is cut, so that it locks nobody out.
local step = lazily(function(step)
  step.leases, step.places, step.sent, step.closed, step.all = {}, {}, {}, {}, true
  -- The longest that a limit may send a job back for.
  step.longest = own.duration * (own.algorithm == 'fixed_window' and 1 or 2)
  for _, limit in ipairs(named) do
    if limited.for_all(limit) then step.longest = math.max(step.longest, limit.algorithm == 'concurrency' and lease or 2 * limit.window) end
  end

  -- Reads up to some leases and jobs that lie too far ahead, and returns how many; all is false if there may be more.
  function step.read(most)
    local left = most
    step.leases = call('ZRANGE', active, '(' .. text(now + lease), '+inf', 'BYSCORE', 'LIMIT', '0', text(left))
    left = left - #step.leases
    for _, id in ipairs(call('ZRANGE', sent, '0', text(left))) do
      local due = tonumber(call('ZSCORE', delayed, id) or '0')
      if due > now + step.longest then table.insert(step.sent, id) end
    end
    left = math.max(0, left - #step.sent)
    if some_closed then
      for _, what in ipairs(call('ZRANGE', closed, '0', '127', 'REV')) do
        local length = whole(string.match(call('HGET', reasons, what) or '', '^%d+'))
        if length and closed_for(what) > length then table.insert(step.closed, {what, now + length}) end
      end
    end
    step.all = left > 0 and #step.closed < 128
    local words = leased.read(step.leases)
    for _, member in ipairs(step.leases) do step.places[member] = leased.places(words[member]) end
    return most - left
  end

  function step.write()
    for _, member in ipairs(step.leases) do
      call('ZADD', active, text(now + lease), member)
      for _, bucket in ipairs(step.places[member]) do call('ZADD', limiter .. ':' .. bucket, 'XX', text(now + lease), member) end
    end
    for _, shut in ipairs(step.closed) do call('ZADD', closed, text(shut[2]), shut[1]) end
    for _, id in ipairs(step.sent) do call('ZADD', delayed, 'XX', text(now + step.longest), id) end
  end
end)
step.back = kept.seen > now + 1000
