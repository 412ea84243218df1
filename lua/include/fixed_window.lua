-- Fixed window: a plain counter whose TTL is its window. The window opens with the first unit and ends one window later, or
-- at the next multiple of the window when it is aligned. A marked one holds the window's id after the count.
local fixed_window = {}

function fixed_window.read(b)
  b.count, b.change = 0, 0
  b.length = b.aligned and b.window - math.fmod(b.now, b.window) or b.window -- of a window that opens now
  b.left = b.length
  local raw = call('GET', b.key)
  if raw then
    local stored = raw
    if b.marked and string.find(raw, ' ', 1, true) then stored, b.id_of_window = string.match(raw, '^(%d+) (%d+)$') end
    local digits = string.gsub(stored or '', '^%-', '', 1)
    local count = whole(digits)
    if not count or stored == '-0' then return nil, raw end
    local left = call('PTTL', b.key)
    if left ~= 0 then -- else its last millisecond: the key can still be read, but its window is over
      b.open, b.left, b.negative = true, left, digits ~= stored
      if not b.negative then b.count = count end
      -- The largest integer with a TTL longer than the window is another runtime's manual stop and keeps it.
      b.stopped = left > b.window and b.count == MOST
      if left < 0 or (left > b.window and not b.stopped) then
        -- No TTL (a crash, an operator's SET), or one that the clock or a shorter window left behind.
        b.left, b.repair = b.length, true
      end
    end
  end
  b.free = math.max(0, b.max - b.count)
  return true
end

function fixed_window.wait(b)
  return b.left
end

local function fixed_window_add(b, n)
  b.count, b.change = b.count + n, b.change + n
  b.free = math.max(0, b.max - b.count)
end

fixed_window.spend = fixed_window_add

function fixed_window.refund(b, n)
  if not b.stopped then fixed_window_add(b, -math.min(n, b.count)) end
end

function fixed_window.deny(b, n)
  if not b.stopped then fixed_window_add(b, math.min(n, MOST - b.count)) end
end

function fixed_window.charge(b, n)
  fixed_window_add(b, math.min(n, MOST - b.count))
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
    if b.change > 0 then call('SET', b.key, text(b.change) .. (b.marked and ' ' .. b.opening or ''), 'PX', text(b.length)) end
    return
  end
  if b.change ~= 0 then
    if b.negative or b.id_of_window then
      call('SET', b.key, text(b.count) .. (b.id_of_window and ' ' .. b.id_of_window or ''), 'KEEPTTL')
    else
      call('INCRBY', b.key, text(b.change))
    end
  end
  if b.repair then call('PEXPIRE', b.key, text(b.left)) end
end
