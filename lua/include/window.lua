-- Fixed window: a counter whose TTL is its window. It opens with the first unit and ends one duration later.
--
-- read  -> {count, left, free, ...}; spend and repair write; a denial writes nothing but the repair.

-- Returns the window of key, or nil with the value that is no counter. A max of 0 is unlimited: the key is not read.
local function window_read(key, max, duration)
  local w = {key = key, max = max, duration = duration, count = 0, left = 0, free = math.huge}
  if max == 0 then return w end
  local raw = call('GET', key)
  if raw then
    local digits = string.gsub(raw, '^%-', '', 1)
    local count = whole(digits)
    if not count or raw == '-0' then return nil, raw end
    local left = call('PTTL', key)
    if left == 0 then
      -- The last millisecond: the key can still be read, but its window is over.
    else
      w.open, w.left = true, left
      if digits ~= raw then
        w.negative = true
      else
        w.count = count
      end
      -- The largest integer with a TTL longer than the window is another runtime's manual stop and keeps it.
      w.stopped = left > duration and count == MOST and not w.negative
      if left < 0 or (left > duration and not w.stopped) then
        -- No TTL (a crash, an operator's SET), or one longer than the window (the clock stepped back, the window was
        -- shortened).
        w.left, w.repair = duration, true
      end
    end
  end
  w.free = math.max(0, max - w.count)
  return w
end

local function window_repair(w)
  if w.repair then call('PEXPIRE', w.key, text(w.duration)) end
end

-- Spends n units that were found free. Returns how long the window still runs.
local function window_spend(w, n)
  if w.max == 0 then return 0 end
  if not w.open then
    call('SET', w.key, text(n), 'PX', text(w.duration))
    return w.duration
  end
  if w.negative then
    call('SET', w.key, text(n), 'KEEPTTL')
  else
    call('INCRBY', w.key, text(n))
  end
  window_repair(w)
  return w.left
end
