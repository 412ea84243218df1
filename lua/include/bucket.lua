-- Buckets of every algorithm. A bucket is a table
--
--   key, algorithm, max, window, burst    the rule; max 0 is unlimited and its key is not touched
--   aligned, count_denied                 options, see buckets.rule
--   marked, opening                       set by a caller that gives back what single spends took: the id of a window that opens
--   cap, free                             units that it can grant at once at most, and now
--
-- and is judged in memory: read, then wait, spend and refund as often as needed, then write, once. An algorithm is a table of
-- functions of the same names that are called only for what they can do: its wait for 1 to cap units that are not free.
local buckets = lazily(function(buckets)
-- include ratio.lua
-- include fixed_window.lua
-- include sliding_log.lua
-- include sliding_window_counter.lua
-- include level.lua
-- include token_bucket.lua
-- include leaky_bucket.lua
-- include concurrency.lua
  local algorithms = {
    fixed_window = fixed_window,
    sliding_log = sliding_log,
    sliding_window_counter = sliding_window_counter,
    token_bucket = token_bucket,
    leaky_bucket = leaky_bucket,
    concurrency = concurrency,
  }

  -- What the buckets of a limit have in common; they inherit it. options holds words: aligned (fixed_window: windows are multiples of the
  -- window), count_denied (fixed_window and sliding_log: a denied call counts as if it had been granted).
  function buckets.rule(algorithm, max, window, burst, options)
    local r = {
      algorithm = algorithm, max = max, window = window, burst = burst, cap = max,
      aligned = options ~= '' and string.find(options, 'aligned', 1, true),
      count_denied = options ~= '' and string.find(options, 'count_denied', 1, true),
      rule = max > 0 and algorithms[algorithm],
    }
    if max == 0 then
      r.cap = math.huge
    elseif algorithm == 'token_bucket' or algorithm == 'leaky_bucket' then
      r.cap = burst > 0 and burst or (algorithm == 'leaky_bucket' and 1 or max)
    end
    r.__index = r
    return r
  end

  -- A bucket of a rule, of a key value if it has one. The fields that most have are named, since a table that grows is built anew.
  function buckets.of(rule, key, value)
    return setmetatable({key = key, value = value, line = nil, free = math.huge, count = 0, change = 0, left = 0, open = false}, rule)
  end

  function buckets.new(key, ...)
    return buckets.of(buckets.rule(...), key)
  end

  -- Returns true, or nil and what the key holds if that is no state of the bucket. Another type is the server's error.
  function buckets.read(b, now)
    if b.now ~= now then b.now = now end
    if not b.rule then return true end
    return b.rule.read(b)
  end

  -- Where units that are spent now are taken from, so that they can be given back there and nowhere else.
  function buckets.mark(b)
    return b.rule and b.rule.mark and b.rule.mark(b) or '0'
  end

  -- How many ms until n units are granted if nobody else asks: 0 now, -1 never.
  function buckets.wait(b, n)
    if n > b.cap then return -1 end
    return n <= b.free and 0 or b.rule.wait(b, n)
  end

  -- The same for a call that is made now: a denied one is counted where the bucket says so.
  function buckets.ask(b, n)
    local wait = buckets.wait(b, n)
    if wait > 0 and b.count_denied and b.rule.deny then
      b.rule.deny(b, n)
      wait = buckets.wait(b, n)
    end
    return wait
  end

  -- How many ms until a unit granted now leaves a leaky_bucket; else 0.
  function buckets.delay(b)
    return b.rule and b.rule.delay and b.rule.delay(b) or 0
  end

  -- Spends n units that are free.
  function buckets.spend(b, n)
    if b.rule and n > 0 then b.rule.spend(b, n) end
  end

  -- Gives back up to n units, never more than were used.
  function buckets.refund(b, n)
    if b.rule and n > 0 then b.rule.refund(b, n) end
  end

  -- Gives back n of the units that were spent with a mark, where they were taken and nowhere else.
  function buckets.give_back(b, n, mark, units)
    if b.rule and n > 0 then b.rule.give_back(b, n, mark, units) end
  end

  -- Spends n units whether they are free or not.
  function buckets.charge(b, n)
    if b.rule and n > 0 then b.rule[b.rule.charge and 'charge' or 'spend'](b, n) end
  end

  -- How many ms until all units are free if nobody asks.
  function buckets.reset_in(b)
    return b.rule and b.rule.reset_in(b) or 0
  end

  -- Writes what was spent and given back, and repairs: the state of a clock that stepped back or of another window, a TTL that
  -- was lost or is too short for the state.
  function buckets.write(b)
    if b.rule then b.rule.write(b) end
  end
end)
