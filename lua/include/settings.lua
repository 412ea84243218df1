-- The queue's own settings, field by field from meta. What is wrong there closes the queue: it never counts as unlimited.

-- How many entries the audit stream keeps; nil for no audit. It holds while other settings are wrong.
local audit_size

local rules = lazily(function(rules)
  -- concurrency is for limits by name alone.
  rules.algorithms = {
    fixed_window = true, sliding_log = true, sliding_window_counter = true, token_bucket = true, leaky_bucket = true,
    concurrency = true,
  }

  -- The most units at once that the algorithm counts exactly: integers are exact up to 2^53-1, and a log keeps each unit.
  local function most_exact(algorithm, max, window)
    if algorithm == 'sliding_log' then return 1000000 end
    if algorithm == 'sliding_window_counter' then return (MOST - math.fmod(MOST, window)) / window end
    if algorithm == 'fixed_window' or algorithm == 'concurrency' then return MOST end
    local divisor, rest = max, window
    while rest > 0 do
      divisor, rest = rest, math.fmod(divisor, rest)
    end
    local parts = window / divisor
    return (MOST - math.fmod(MOST, parts)) / parts
  end

  -- A limit from the texts of max, duration, algorithm and burst; or nil with the field and the value that are
  -- wrong. A leaky bucket hands out one unit at a time: nothing can wait inside the server.
  function rules.read(max, duration, algorithm, burst)
    local own = {
      max = whole(max or '0'), duration = whole(duration or '1000'), algorithm = algorithm or 'fixed_window', burst = whole(burst or '0'),
    }
    if not own.max then return nil, 'max', max end
    if not own.duration or own.duration < 1 then return nil, 'duration', duration end
    if not rules.algorithms[own.algorithm] then return nil, 'algorithm', algorithm end
    if not own.burst then return nil, 'burst', burst end
    if own.algorithm == 'leaky_bucket' then own.burst = 1 end
    if own.max > 0 then
      local most = most_exact(own.algorithm, own.max, own.duration)
      if own.algorithm == 'token_bucket' and own.burst > 0 then
        if own.burst > most then return nil, 'burst', burst end
      elseif own.max > most then
        return nil, 'max', max
      end
    end
    return own
  end
end)

-- Returns the settings, or nil with the field and the value that are wrong.
local function settings(meta)
  local v = call('HMGET', meta, 'max', 'duration', 'algorithm', 'burst', 'paused', 'layout', 'audit')
  audit_size = whole(v[7])
  if v[6] and v[6] ~= '1' then return nil, 'layout', v[6] end
  local own, field, value = {max = 0, duration = 1000, algorithm = 'fixed_window', burst = 0} -- as rules.read has it for nothing
  if v[1] or v[2] or v[3] or v[4] then own, field, value = rules.read(v[1], v[2], v[3], v[4]) end
  if not own then return nil, field, value end
  if own.algorithm == 'concurrency' then return nil, 'algorithm', v[3] end
  if v[7] and not audit_size then return nil, 'audit', v[7] end
  own.layout, own.paused = v[6], v[5] and v[5] ~= '' and v[5] ~= '0'
  return own
end
