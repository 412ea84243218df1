-- Fixed window: a plain counter whose TTL is its window. The window opens with the first unit and ends one window later, or
-- at the next multiple of the window when it is aligned. A marked one holds the window's id after the count.
local fixed_window = lazily(function(fixed_window)
  -- The length of a window that opens now.
  function fixed_window.length(b)
    return b.aligned and b.window - math.fmod(b.now, b.window) or b.window
  end

  -- The count that a text holds, the same without its sign, and the window's id after it; nil if it is none.
  function fixed_window.count(b, raw)
    local stored, id = raw, nil
    if b.marked and string.find(raw, ' ', 1, true) then stored, id = string.match(raw, '^(%d+) (%d+)$') end
    local negative = stored and string.byte(stored) == 45 -- '-'
    local count = stored ~= '-0' and whole(negative and string.sub(stored, 2) or stored)
    return count or nil, negative, id
  end

  function fixed_window.read(b)
    b.left = b.aligned and fixed_window.length(b) or b.window
    local raw = call('GET', b.key)
    if raw then
      local count, negative = whole(raw), false
      if not count then
        local id
        count, negative, id = fixed_window.count(b, raw)
        if not count then return nil, raw end
        if id then b.id_of_window = id end
      end
      local left = call('PTTL', b.key)
      if left ~= 0 then -- else its last millisecond: the key can still be read, but its window is over
        b.open, b.left = true, left
        if negative then
          b.negative = true
        else
          b.count = count
        end
        -- The largest integer with a TTL longer than the window is another runtime's manual stop and keeps it.
        if left > b.window and b.count == MOST then b.stopped = true end
        if left < 0 or (left > b.window and not b.stopped) then
          -- No TTL (a crash, an operator's SET), or one that the clock or a shorter window left behind.
          b.left, b.repair = fixed_window.length(b), true
        end
      end
    end
    b.free = b.count < b.max and b.max - b.count or 0
    return true
  end

  function fixed_window.wait(b)
    return b.left
  end

  function fixed_window.spend(b, n)
    local count = b.count + n
    b.count, b.change = count, b.change + n
    b.free = count < b.max and b.max - count or 0
  end

  function fixed_window.refund(b, n)
    if not b.stopped then fixed_window.spend(b, -math.min(n, b.count)) end
  end

  function fixed_window.deny(b, n)
    if not b.stopped then fixed_window.spend(b, math.min(n, MOST - b.count)) end
  end

  function fixed_window.charge(b, n)
    fixed_window.spend(b, math.min(n, MOST - b.count))
  end

  -- The window must be the same.
  function fixed_window.give_back(b, n, mark)
    if b.open and mark == b.id_of_window then fixed_window.refund(b, n) end
  end

  function fixed_window.reset_in(b)
    return b.count > 0 and b.left or 0
  end

  -- Which window a unit is taken from now.
  function fixed_window.mark(b)
    return b.open and (b.id_of_window or '0') or b.opening
  end

  function fixed_window.write(b)
    if not b.open then
      if b.change > 0 then call('SET', b.key, text(b.change) .. (b.marked and ' ' .. b.opening or ''), 'PX', text(fixed_window.length(b))) end
      return
    end
    if b.change ~= 0 then
      if b.negative or b.id_of_window then
        call('SET', b.key, text(b.count) .. (b.id_of_window and ' ' .. b.id_of_window or ''), 'KEEPTTL')
      else
        call('INCRBY', b.key, b.change == 1 and '1' or text(b.change))
      end
    end
    if b.repair then call('PEXPIRE', b.key, text(b.left)) end
  end
end)
