-- Limits by name, in the hash limits: name to the words
--
--   bucket algorithm max window burst by unit mode overrides at reason
--
-- bucket is what the limit's buckets are called: its name, followed by ~ and a number that grows, about the ms, when they were reset or
-- limits of that name and another rule were removed before it. by and unit are * for none, mode is live or shadow, overrides counts the key values that have a rule of
-- their own, at is the server ms of the last change; the reason is the rest.
-- include header.lua

-- The buckets of limits, each read once, in the order in which they were asked for; each limit knows its own by their values. broken
-- is the answer when one holds no state of its limit. opening is the id of fixed windows that open now.
local limited = lazily(function(limited)
  local LIMIT = '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) ?(.*)$'

  -- The limit that a text stands for, or nil.
  function limited.parse(name, stored)
    local bucket, algorithm, max, window, burst, by, unit, mode, overrides, at, reason = string.match(stored, LIMIT)
    if not bucket then return nil end
    local rule = rules.read(max, algorithm == 'concurrency' and '1' or window, algorithm, burst)
    overrides, at = whole(overrides), whole(at)
    if not (rule and overrides and at and (mode == 'live' or mode == 'shadow')) then return nil end
    return {
      name = name, bucket = bucket, algorithm = algorithm, max = rule.max, window = rule.duration, burst = rule.burst,
      by = by ~= '*' and by or nil, unit = unit ~= '*' and unit or nil, shadow = mode == 'shadow', overrides = overrides,
      at = at, reason = reason,
    }
  end

  -- A limit that every job falls under: it refuses for all, and its jobs stand in no line.
  function limited.for_all(limit)
    return not (limit.by or limit.unit)
  end

  -- A key value as it stands in the name of a key.
  function limited.encoded(value)
    if not string.find(value, '[^%w._-]') then return value end
    return (string.gsub(value, '[^%w._-]', function(c) return string.format('%%%02X', string.byte(c)) end))
  end

  -- The rule of a limit for one key value: max, window and burst of its override, else of the limit; nil and the text if the
  -- override is none.
  function limited.rule_for(limit, overrides, value)
    if value and limit.overrides > 0 then
      local stored = call('HGET', overrides, limit.name .. ':' .. value)
      if stored then
        local max, window, burst = string.match(stored, '^(%S+) (%S+) (%S+)$')
        local rule = max and rules.read(max, window, limit.algorithm, burst)
        if not rule then return nil, stored end
        return {max = rule.max, window = rule.duration, burst = rule.burst}
      end
    end
    return limit
  end

  -- What a job spends from a limit: the key value (nil for none) and the cost; nil if the limit does not judge it.
  function limited.falls_under(limit, keys, costs)
    local value = limit.by and keys[limit.by]
    if limit.by and not value then return nil, 0 end
    return value, limit.unit and (whole(costs[limit.unit]) or 0) or 1
  end

  function limited.bucket_id(limit, value)
    return value and limit.bucket .. ':' .. limited.encoded(value) or limit.bucket
  end

  -- What a bucket is called among lines, holds and leases: its limit's word for its buckets, and the key value.
  function limited.id(b)
    local id = b.id
    if not id then
      id = string.sub(b.key, #limiter + 2)
      b.id = id
    end
    return id
  end

  -- What the buckets of a limit have in common; those with an override have a rule of their own.
  function limited.rule(limit, value)
    local rule, wrong = limited.rule_for(limit, overrides, value)
    if not rule then
      limited.broken = limited.broken or {'misconfigured', overrides, limit.name .. ':' .. value, wrong}
      rule = limit
    end
    local shared = buckets.rule(limit.algorithm, rule.max, rule.window, rule.burst, '')
    shared.limit, shared.marked, shared.opening, shared.now = limit, limit.unit ~= nil, limited.opening, now
    return shared
  end

  -- The bucket of a limit for a key value (nil for none), and whether it is asked for the first time.
  function limited.bucket(limit, value)
    local by_value = limit.buckets
    if not by_value then
      by_value = {}
      limit.buckets, limit.stem = by_value, limiter .. ':' .. limit.bucket .. (limit.by and ':' or '')
      if limit.overrides == 0 then limit.shared = limited.rule(limit) end
    end
    local b = by_value[value or '']
    if b then return b, false end
    b = buckets.of(limit.shared or limited.rule(limit, value), value and limit.stem .. limited.encoded(value) or limit.stem, value)
    local valid, garbage = buckets.read(b, now)
    if not valid then
      limited.broken = limited.broken or {'corrupt', b.key, garbage}
      b.rule, b.free, b.cap = false, 0, math.huge
    end
    by_value[value or ''] = b
    limited.list[#limited.list + 1] = b
    return b, true
  end
end)
limited.list, limited.broken = {}, false

-- All limits by the order of their names; or nil with the name and the text that is wrong.
local function read_limits(key)
  local list, stored = {}, call('HGETALL', key)
  for i = 1, #stored, 2 do
    local limit = limited.parse(stored[i], stored[i + 1])
    if not limit then return nil, stored[i], stored[i + 1] end
    list[#list + 1] = limit
  end
  if #list > 1 then table.sort(list, function(a, b) return a.name < b.name end) end
  return list
end
