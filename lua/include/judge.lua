-- The judgement of a job by all limits that it falls under: by those for all jobs first (globals), then by those by key or by
-- cost (judged), then by those that only count (shadows). All buckets are read once, judged in memory and written once.
local globals, judged, shadows = {}, {}, {}
local shut_buckets = {}
local shadowed = {}     -- how many jobs each shadow limit would have refused
local holding = now < kept.held
local MOVES_TO_HOLD = 3 -- a job that was refused after so many moves between lines holds its cost
local judge = lazily(function(judge)
  function judge.hold_key(b)
    return prefix .. 'hold:' .. limited.id(b)
  end

  -- The part of a bucket kept for a job that waited too long: "place units set end id". One that was set later than now was so before
  -- the clock stepped back, and keeps nothing.
  function judge.read_hold(b)
    local key = judge.hold_key(b)
    local stored = call('GET', key)
    if not stored then return end
    local place, n, at, till, id = string.match(stored, '^(%d+) (%d+) (%d+) (%d+) (%S+)$')
    place, n, at, till = whole(place), whole(n), whole(at), whole(till)
    if not (place and n and at and till) then
      limited.broken = limited.broken or {'corrupt', key, stored}
    elseif at <= now and till > now then
      b.hold = {place = place, n = n, till = math.min(till, now + judge.span(b)), id = id}
    end
  end

  -- How long a bucket may be held at most.
  function judge.span(b)
    return b.algorithm == 'concurrency' and lease or b.window
  end

  -- The bucket of a limit for a key value, with what stands in its way.
  function judge.bucket(limit, value)
    local b, first = limited.bucket(limit, value)
    if not first then return b end
    if limit.algorithm == 'concurrency' then b.lease = lease end
    if limit.lines then
      if holding then judge.read_hold(b) end
      if line.some then b.line = line.of(limited.id(b)) end
    end
    return b
  end

  -- The line of a bucket, which has none before a job joins it where no lines were.
  function judge.line(b)
    if not b.line then b.line = line.of(limited.id(b)) end
    return b.line
  end

  -- Until they let one through: the latest of those that refuse, and its name.
  function judge.wait()
    local latest, name = 0, ''
    for _, b in ipairs(globals) do
      local wait = buckets.wait(b, 1)
      if wait > latest then latest, name = wait, (b.limit or b.shut) and limited.id(b) or '' end
    end
    return latest, name
  end

  -- Adds to what a job asks for: {bucket, units}, in tables that serve for one job after the other.
  function judge.ask(asks, b, n)
    local last = asks.n + 1
    asks.n = last
    local ask = asks[last]
    if not ask then
      asks[last] = {b, n, refused = false, behind = false}
    else
      ask[1], ask[2], ask.refused, ask.behind = b, n, false, false
    end
  end

  -- What a job asks for, n times {bucket, units}. by is what sorts the limits it is asked of.
  function judge.asks(record, by)
    local asks = judge.asked[by == judged and 1 or 2]
    asks.n = 0
    if by == shadows and #by == 0 or by == judged and judge.all_alike then return asks end
    local names = by == judged and some_closed and {}
    local keys, costs
    if names then keys, costs = headers.read(record, names) end
    for i = 1, #by do
      local limit = by[i]
      local value, n = limit.by and not (limit.unit or keys) and headers.first(record, limit.by), 1
      if not value then
        if not keys then keys, costs = headers.read(record) end
        value, n = limited.falls_under(limit, keys, costs)
      end
      if n > 0 then judge.ask(asks, limit.buckets and limit.buckets[value or ''] or judge.bucket(limit, value), n) end
    end
    if names then
      for _, key in ipairs(names) do
        local value, id = keys[key], closing.id(key, keys[key])
        if shut_buckets[id] == nil then
          local ms = closed_for(key .. ':' .. value)
          shut_buckets[id] = ms > 0 and closing.bucket(key .. ':' .. limited.encoded(value), ms)
          if ms > 0 then shut_buckets[id].line = line.of(id) end
        end
        if shut_buckets[id] then judge.ask(asks, shut_buckets[id], 1) end
      end
    end
    return asks
  end

  -- How many units of a bucket are kept from a job for an earlier one.
  function judge.held_from(b, place, id)
    local hold = b.hold
    return hold and hold.id ~= id and hold.place < place and hold.n or 0
  end

  -- How many ms until a bucket grants n units to a job if nobody else asks: 0 now, -1 never.
  function judge.wait_for(b, n, place, id)
    if n > b.cap then return -1 end
    if n <= b.free and not b.hold then return 0 end
    local held = judge.held_from(b, place, id)
    if n <= b.free - held then return 0 end
    local wait = buckets.wait(b, n + held)
    if held > 0 and (wait < 0 or wait > b.hold.till - now) then wait = b.hold.till - now end
    return wait
  end

  -- Judges a job that stands in a line (nil for none). Returns 'granted'; or 'never' with the ask that can never be granted; or 'blocked'
  -- with the bucket whose line it is to stand in and its retry-after: of those that block it the latest.
  function judge.job(place, id, asks, stands)
    local blocker, latest = nil, 0
    for i = 1, asks.n do
      local ask = asks[i]
      local b, n = ask[1], ask[2]
      local wait = judge.wait_for(b, n, place, id)
      if wait < 0 then return 'never', ask end
      if wait > 0 then ask.refused = true end
      local head = b.line and line.head(b.line)
      if head and head < place then
        ask.behind = true
        wait = math.max(wait, 1, b.line.where == 'asleep' and b.line.wake - now or 1)
      end
      if wait > latest or (stands and wait > 0 and wait == latest and b.line == stands) then blocker, latest = b, wait end
    end
    if blocker then return 'blocked', blocker, latest end
    return 'granted'
  end

  -- Does every bucket grant what a job asks for, with nothing in its way? If not, judge.job knows more.
  function judge.grants(asks)
    for i = 1, asks.n do
      local b = asks[i][1]
      if asks[i][2] > b.free or b.line or b.hold then return false end
    end
    return true
  end

  -- Drops the holds of a job; others may have what they kept.
  function judge.drop_holds(id, asks, reopen)
    for i = 1, asks.n do
      local b = asks[i][1]
      if b.hold and b.hold.id == id then
        b.hold, b.hold_changed = nil, true
        if reopen then reopen(b) end
      end
    end
  end

  -- A job that was refused after MOVES_TO_HOLD moves between lines holds its cost, so that buckets that open in turn do not pass it for
  -- ever: in each of its buckets that is long enough, until the latest retry-after, unless an earlier job stands in or holds one of
  -- them.
  function judge.hold(place, id, asks, reopen)
    local till = 0
    for i = 1, asks.n do
      local ask = asks[i]
      local b = ask[1]
      if b.shut or ask.behind or judge.held_from(b, place, id) > 0 then return false end
      if ask.refused then
        local wait = b.algorithm == 'concurrency' and lease or buckets.wait(b, ask[2])
        till = math.max(till, now + wait)
      end
    end
    if till <= now then return false end
    for i = 1, asks.n do
      local b, n = asks[i][1], asks[i][2]
      if judge.span(b) >= till - now then
        local old = b.hold
        judge.some_hold = true
        if not old and not holding then call('EXISTS', judge.hold_key(b)) end
        b.hold, b.hold_changed = {place = place, n = n, till = till, id = id}, true
        if old and (old.id ~= id or old.till > till or old.n > n) then reopen(b, place, id) end
      end
    end
    return true
  end

  -- Takes n units from a bucket; what the lease holds of them is added to spent, which is made when it is needed.
  function judge.take(b, n, spent)
    if b.algorithm == 'concurrency' then
      if b.max == 0 then call('ZCARD', b.key) end -- it was not read to be judged
      spent = spent or {places = {}}
      table.insert(spent.places, limited.id(b))
      spent.words = (spent.words and spent.words .. ' ' or '') .. limited.id(b)
    elseif b.marked then
      spent = spent or {places = {}}
      spent.words = (spent.words and spent.words .. ' ' or '') .. limited.id(b) .. '|' .. b.limit.unit .. '|' .. text(n) .. '|' .. buckets.mark(b)
    end
    buckets.spend(b, n)
    return spent
  end

  -- Spends what a granted job asks for, from the limits for all jobs unless that is done for all jobs at once, and from shadow limits what they would have granted.
  -- Returns what its lease holds: the concurrency buckets, and all as words; nil for nothing.
  function judge.spend(record, asks)
    local spent
    for i = 1, judge.simple and 0 or #globals do spent = judge.take(globals[i], 1, spent) end
    for i = 1, asks.n do
      local b, n = asks[i][1], asks[i][2]
      if b.marked or b.algorithm == 'concurrency' then
        spent = judge.take(b, n, spent)
      elseif b.rule then
        b.rule.spend(b, n)
      end
    end
    if #shadows == 0 then return spent end
    asks = judge.asks(record, shadows)
    for i = 1, asks.n do
      local b, n = asks[i][1], asks[i][2]
      if n > b.free then shadowed[b.limit.name] = (shadowed[b.limit.name] or 0) + 1 end
      -- A job in flight is one, whether it should be or not.
      if n <= b.free or b.algorithm == 'concurrency' then spent = judge.take(b, n, spent) end
    end
    return spent
  end

  -- Why an ask can never be granted.
  function judge.never_text(ask)
    local b = ask[1]
    return 'cost ' .. b.limit.unit .. '=' .. text(ask[2]) .. ' can never be granted: limit ' .. b.limit.name ..
      (b.value and ' for ' .. b.limit.by .. '=' .. b.value or '') .. ' grants at most ' .. text(b.cap) .. ' at once'
  end

  -- The ms until which some bucket is held at most.
  function judge.last_hold()
    local till = 0
    for _, b in ipairs(limited.list) do
      if b.hold_changed and b.hold then till = math.max(till, b.hold.till) end
    end
    return till
  end

  -- The holds that were set, for the audit: "bucket id units till,…".
  function judge.holds()
    local words = {}
    for _, b in ipairs(limited.list) do
      if b.hold_changed and b.hold then
        table.insert(words, limited.id(b) .. ' ' .. b.hold.id .. ' ' .. text(b.hold.n) .. ' ' .. text(b.hold.till))
      end
    end
    return table.concat(words, ',')
  end

  function judge.write()
    for _, b in ipairs(limited.list) do
      buckets.write(b)
      if b.hold_changed and b.hold then
        local h = b.hold
        call('SET', judge.hold_key(b), text(h.place) .. ' ' .. text(h.n) .. ' ' .. text(now) .. ' ' .. text(h.till) .. ' ' .. h.id, 'PX', text(h.till - now))
      elseif b.hold_changed then
        call('UNLINK', judge.hold_key(b))
      end
    end
  end

  -- Sorts the limits by name by what they do. Jobs of a closed queue wait for it as for a budget.
  function judge.sort_named(limits)
    local shut_for = closed_for('queue')
    if shut_for > 0 then globals[#globals + 1] = closing.bucket('queue', shut_for) end
    for _, limit in ipairs(limits) do
      if limit.shadow then
        shadows[#shadows + 1] = limit
      elseif limited.for_all(limit) then
        globals[#globals + 1] = judge.bucket(limit)
      else
        limit.lines = true -- jobs that it refuses stand in line
        judged[#judged + 1] = limit
        if limit.unit or limit.algorithm == 'concurrency' then judge.plain = false end
      end
    end
    judge.all_alike = #judged == 0 and not some_closed
    judge.placeless = judge.all_alike or not (line.some or holding or some_closed)
    judge.simple = #shadows == 0
    for _, b in ipairs(globals) do
      if b.algorithm == 'concurrency' then judge.simple = false end
    end
    judge.plain = judge.plain and judge.simple and judge.placeless
  end
end)
judge.placeless = false -- does no place matter, as long as no job is refused?
judge.asked = {{n = 0}, {n = 0}} -- what the job at hand asks for; of shadow limits
judge.some_hold = holding
judge.all_alike = false -- does no limit tell jobs apart, so that all stand under the same?
judge.simple = true     -- do leases hold nothing of what the limits for all jobs grant?
judge.plain = true      -- nor of what any limit grants, all of them being by key and no place mattering?

-- What no claim is without: the queue's own budget is the first of the limits for all jobs.
function judge.sort(own_budget, limits)
  if own_budget.max > 0 then globals[1] = own_budget end
  judge.all_alike, judge.placeless = true, true
  if #limits > 0 or some_closed then judge.sort_named(limits) end
end

-- How many more jobs the limits for all jobs let through.
function judge.free()
  local free = math.huge
  for i = 1, #globals do
    if globals[i].free < free then free = globals[i].free end
  end
  return free
end

-- Spends what n granted jobs cost of the limits for all jobs, where leases hold nothing of it.
function judge.spend_simply(n)
  if judge.simple then
    for i = 1, n > 0 and #globals or 0 do globals[i].rule.spend(globals[i], n) end
  end
end
