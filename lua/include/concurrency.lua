-- Concurrency: a sorted set with a member for each lease (id|token), scored by its end. A lease that has ended does not count.
-- Only a claim spends here; whoever ends a lease takes its member out.
local concurrency = lazily(function(concurrency)
  function concurrency.read(b)
    b.used, b.taken = call('ZCOUNT', b.key, '(' .. text(b.now), '+inf'), 0
    b.free = math.max(0, b.max - b.used)
    return true
  end

  -- Until the first of the leases ends: an upper bound.
  function concurrency.wait(b)
    local first = call('ZRANGE', b.key, '(' .. text(b.now), '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')[2]
    return math.min(first and tonumber(first) - b.now or math.huge, b.taken > 0 and b.lease or math.huge)
  end

  function concurrency.spend(b, n)
    b.used, b.taken = b.used + n, b.taken + n
    b.free = math.max(0, b.max - b.used)
  end

  -- Until the last of the leases ends.
  function concurrency.reset_in(b)
    local last = tonumber(call('ZRANGE', b.key, '-1', '-1', 'WITHSCORES')[2] or '0')
    return math.max(0, last - b.now, b.taken > 0 and b.lease or 0)
  end

  function concurrency.write() end
end)
