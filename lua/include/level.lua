-- The level of a bucket that runs out evenly: what token_bucket and leaky_bucket share. It is the string "q used at", with
-- the level in parts of a unit: at a rate of max/window = p/q in lowest terms, q parts make a unit and p parts run out in a
-- ms, so all is whole numbers. A level above what the bucket holds, by a charge, is followed by what it held then: "q used at cap".
local level = lazily(function(level)
  local function level_free(b)
    b.free = math.max(0, quotient(b.cap * b.q - b.used, b.q))
  end

  function level.read(b, cut)
    local divisor, rest = b.max, b.window
    while rest > 0 do
      divisor, rest = rest, math.fmod(divisor, rest)
    end
    b.p, b.q, b.used, b.at = b.max / divisor, b.window / divisor, 0, b.now
    local raw = call('GET', b.key)
    if raw then
      local q, used, at, cap = string.match(raw, '^(%d+) (%d+) (%d+) ?(%d*)$')
      q, used, at = whole(q), whole(used), whole(at)
      if not (q and used and at) or q == 0 or string.sub(raw, -1) == ' ' then return nil, raw end
      if cap ~= '' and (not b.marked or not whole(cap)) then return nil, raw end
      b.debt = cap == text(b.cap)
      if q ~= b.q then used = scale_up(used, b.q, q) end
      if cut and not b.debt then used = math.min(used, b.cap * b.q) end
      if at - b.now > b.window then at, b.repair = b.now, true end -- the clock stepped far back
      local passed = b.now - at
      if passed >= quotient_up(used, b.p) then
        used = 0
      elseif passed > 0 then
        used = used - passed * b.p
      end
      b.used = used
      if used > 0 then b.at = math.max(b.now, at) end -- time stands still while at lies ahead
      if call('PTTL', b.key) < level.reset_in(b) then b.repair = true end
    end
    level_free(b)
    return true
  end

  -- How long until parts have run out; at most MOST.
  local function level_time(b, parts)
    return math.min(MOST, b.at - b.now + quotient_up(parts, b.p))
  end

  function level.wait(b, n)
    return level_time(b, b.used - (b.cap * b.q - n * b.q))
  end

  -- The rate and the time at which units are taken now.
  function level.mark(b)
    return text(b.p) .. ':' .. text(b.q) .. ':' .. text(b.at)
  end

  function level.spend(b, n)
    b.used, b.repair = b.used + n * b.q, true
    level_free(b)
  end

  function level.refund(b, n)
    b.used, b.repair = math.max(0, b.used - n * b.q), true
    level_free(b)
  end

  function level.charge(b, n)
    local room = quotient(MOST - b.used, b.q)
    level.spend(b, math.min(n, room))
    b.debt = true
  end

  -- What of them has not run out since.
  function level.give_back(b, n, mark)
    local p, q, at = string.match(mark, '^(%d+):(%d+):(%d+)$')
    at = whole(at)
    if not at or whole(p) ~= b.p or whole(q) ~= b.q then return end
    local parts, passed = n * b.q, math.max(0, b.now - at)
    if passed >= quotient_up(parts, b.p) then return end
    b.used, b.repair = math.max(0, b.used - (parts - passed * b.p)), true
    level_free(b)
  end

  function level.reset_in(b)
    return b.used > 0 and level_time(b, b.used) or 0
  end

  function level.write(b)
    if not b.repair then return end
    local reset = level.reset_in(b)
    if reset == 0 then
      call('UNLINK', b.key)
    else
      local debt = b.debt and b.used > b.cap * b.q and ' ' .. text(b.cap) or ''
      call('SET', b.key, text(b.q) .. ' ' .. text(b.used) .. ' ' .. text(b.at) .. debt, 'PX', text(reset))
    end
  end
end)
