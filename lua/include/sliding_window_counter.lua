-- Sliding window counter: the string "window index current previous". Windows are multiples of the window; what was used in
-- the previous one weighs as much as the last `window` ms reach into it, rounded up.
local sliding_window_counter = lazily(function(sliding_window_counter)
  local function counter_free(b)
    b.free = math.max(0, b.max - b.current - scale_up(b.previous, b.window - b.elapsed, b.window))
  end

  function sliding_window_counter.read(b)
    local length = b.window
    b.current, b.previous, b.ahead = 0, 0, 0
    b.elapsed = math.fmod(b.now, length)
    b.index = (b.now - b.elapsed) / length
    local raw = call('GET', b.key)
    if raw then
      local stored, index, current, previous = string.match(raw, '^(%d+) (%d+) (%d+) (%d+)$')
      stored, index, current, previous = whole(stored), whole(index), whole(current), whole(previous)
      if not (stored and index and current and previous) or stored == 0 or stored * index > MOST then return nil, raw end
      local age = b.now - stored * index -- since the stored window began
      if stored ~= length or age < -length then
        -- Another window, or a clock far back: what still counts is carried over whole.
        if age < 0 then
          current = current + previous
        elseif age < stored then
          current = current + scale_up(previous, stored - age, stored)
        elseif age - stored >= stored then
          current = 0
        end
        b.current, b.repair = math.min(MOST, current), true
      elseif age < 0 then -- the clock stepped back: time stands still where the stored window begins
        b.index, b.elapsed, b.ahead, b.current, b.previous = index, 0, -age, current, previous
      elseif age < length then
        b.current, b.previous = current, previous
      elseif age - length < length then
        b.previous = current
      end
      if call('PTTL', b.key) < sliding_window_counter.reset_in(b) then b.repair = true end
    end
    counter_free(b)
    return true
  end

  function sliding_window_counter.wait(b, n)
    local room, to_edge = b.max - n - b.current, b.ahead + b.window - b.elapsed
    if room >= 0 then return to_edge - quotient(room * b.window, b.previous) end
    return to_edge + b.window - quotient((b.max - n) * b.window, b.current)
  end

  -- The window that units are taken from now.
  function sliding_window_counter.mark(b)
    return text(b.window) .. ':' .. text(b.index)
  end

  function sliding_window_counter.spend(b, n)
    b.current, b.repair = b.current + n, true
    counter_free(b)
  end

  -- Takes back from the current window first.
  function sliding_window_counter.refund(b, n)
    local back = math.min(n, b.current)
    b.current, b.previous, b.repair = b.current - back, b.previous - math.min(n - back, b.previous), true
    counter_free(b)
  end

  function sliding_window_counter.charge(b, n)
    sliding_window_counter.spend(b, math.min(n, MOST - b.current))
  end

  -- While the window they were taken from is the current or the previous one.
  function sliding_window_counter.give_back(b, n, mark)
    local length, index = string.match(mark, '^(%d+):(%d+)$')
    length, index = whole(length), whole(index)
    if length ~= b.window then return end
    if index == b.index then
      b.current, b.repair = b.current - math.min(n, b.current), true
    elseif index == b.index - 1 then
      b.previous, b.repair = b.previous - math.min(n, b.previous), true
    end
    counter_free(b)
  end

  function sliding_window_counter.reset_in(b)
    if b.current + b.previous == 0 then return 0 end
    return b.ahead + b.window - b.elapsed + (b.current > 0 and b.window or 0)
  end

  function sliding_window_counter.write(b)
    if not b.repair then return end
    local reset = sliding_window_counter.reset_in(b)
    if reset == 0 then
      call('UNLINK', b.key)
      return
    end
    local state = text(b.window) .. ' ' .. text(b.index) .. ' ' .. text(b.current) .. ' ' .. text(b.previous)
    call('SET', b.key, state, 'PX', text(reset))
  end
end)
