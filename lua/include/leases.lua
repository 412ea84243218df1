-- What leases hold beside their job, in the hash leases: id|token to words. A word alone is a concurrency bucket in which the lease
-- has a place; <bucket>|<unit>|<units>|<mark> says how many units of a cost it took, and where.

-- What a function answers, or nil if a key that it reads is of another type. Whoever ends or extends leases leaves such a key
-- alone: jobs end whatever their limits keep, and the claim says what is wrong.
local function if_readable(read, ...)
  local ok, answer = pcall(read, ...)
  if ok then return answer end
  local err = type(answer) == 'table' and answer.err or answer -- some servers hand out the text alone
  if not string.find(err, '^WRONGKEY ') then error(redis.error_reply(err)) end
end

local leased = lazily(function(leased)
  -- The words of several leases, by their members; read at once.
  function leased.read(members)
    local words = {}
    if #members > 0 then
      for i, stored in ipairs(call('HMGET', leases, unpack(members))) do
        if stored then
          words[members[i]] = {}
          for word in string.gmatch(stored, '%S+') do table.insert(words[members[i]], word) end
        end
      end
    end
    return words
  end

  -- The concurrency buckets among words, read before they are written.
  function leased.places(words)
    local places = {}
    for _, word in ipairs(words or {}) do
      if not string.find(word, '|', 1, true) then
        call('ZCARD', limiter .. ':' .. word)
        table.insert(places, word)
      end
    end
    return places
  end

  -- Those of them that are none of another type.
  function leased.readable_places(words)
    local places = {}
    for _, word in ipairs(words or {}) do
      for _, place in ipairs(if_readable(leased.places, {word}) or {}) do table.insert(places, place) end
    end
    return places
  end

  -- The id of a bucket whatever limits of its name there were before.
  function leased.same_limit(bucket)
    return (string.gsub(bucket, '^([^:~]+)~%d+', '%1'))
  end

  -- What a lease that is running holds of concurrency limits, whether they were set before it or after: the buckets, and its words.
  function leased.count(member, record, limits)
    local words = call('HGET', leases, member) or ''
    local has, places = {}, {}
    for word in string.gmatch(words, '%S+') do has[word] = true end
    local keys, costs = headers.read(record)
    for _, limit in ipairs(limits) do
      local value, n = limited.falls_under(limit, keys, costs)
      if limit.algorithm == 'concurrency' and n > 0 then
        local bucket = limited.bucket_id(limit, value)
        call('ZCARD', limiter .. ':' .. bucket)
        table.insert(places, bucket)
        if not has[bucket] then words = words .. ' ' .. bucket end
      end
    end
    return {places = places, words = words}
  end

  function leased.write(counted)
    for _, one in ipairs(counted) do
      for _, bucket in ipairs(one[3].places) do call('ZADD', limiter .. ':' .. bucket, one[2], one[1]) end
      if one[3].words ~= '' then call('HSET', leases, one[1], one[3].words) end
    end
  end
end)
