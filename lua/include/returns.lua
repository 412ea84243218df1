-- What comes back: delayed jobs that fell due, and jobs whose leases ended, with the places that these held.
local returns = {
  due = {}, due_sent = {}, is_due = {},                            -- ids; those that a limit sent back; the same as a set
  ended = {}, places = {}, reclaimed = {}, times = {}, dead = 0,   -- members; their concurrency buckets; ids; leases lost by id
}

-- A job with a due time of its own goes to the end of its list, one that a limit sent back to its place.
local function read_due(most)
  local r = returns
  r.due = call('ZRANGE', delayed, '-inf', text(now), 'BYSCORE', 'LIMIT', '0', text(most))
  if #r.due == 0 then return 0 end
  local some_sent = call('ZCARD', sent) > 0
  for _, id in ipairs(r.due) do
    local head = head_of(id)
    local place = place_of(head)
    local was_sent = some_sent and call('ZSCORE', sent, id)
    if was_sent then
      r.is_due[id] = true
      table.insert(r.due_sent, id)
    end
    if not place then
      table.insert(lost, id)
    elseif was_sent then
      table.insert(candidates.returning, {place, id, 'due'})
    else
      seq = seq + 1
      local priority = tonumber(string.sub(head, 1, 1))
      table.insert(candidates.tails[priority], id)
      candidates.tail_places[id] = priority * 1125899906842624 + seq
      change(id, head, 'sequence', sequence_hex(seq))
    end
  end
  return #r.due
end

-- A job whose lease ended goes to its place, or to dead if that happened too often.
local function read_ended(most)
  local r = returns
  r.ended = call('ZRANGE', active, '-inf', text(now), 'BYSCORE', 'LIMIT', '0', text(most))
  if #r.ended == 0 then return 0 end
  local words = leased.read(r.ended)
  for _, member in ipairs(r.ended) do
    r.places[member] = leased.places(words[member])
    local id = string.match(member, '^[^|]*')
    local head = head_of(id)
    local place = place_of(head)
    if not place then
      table.insert(lost, id)
    else
      local times = counters.read(head, 'reclaims') + 1
      change(id, head, 'reclaims', counters.hex('reclaims', times))
      if times >= reclaims then
        table.insert(dying, {id, 'lost\nworker lost ' .. times .. ' times'})
      else
        r.times[id] = times
        table.insert(r.reclaimed, id)
        table.insert(candidates.returning, {place, id, 'ended'})
      end
    end
    for _, bucket in ipairs(r.places[member]) do line.ready(bucket) end
  end
  return #r.ended
end

function returns.write()
  local r = returns
  if #r.due > 0 then call('ZREM', delayed, unpack(r.due)) end
  if #r.due_sent > 0 then call('ZREM', sent, unpack(r.due_sent)) end
  if #r.ended == 0 then return end
  call('ZREM', active, unpack(r.ended))
  for _, member in ipairs(r.ended) do
    for _, bucket in ipairs(r.places[member]) do call('ZREM', limiter .. ':' .. bucket, member) end
  end
  call('HDEL', leases, unpack(r.ended))
end
