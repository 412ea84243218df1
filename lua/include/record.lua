-- The job record: one string per job, at <prefix>job:<id>.
--
--   byte  1     layout, '1'
--         2     priority, '1' (first) to '4'
--         3-12  sequence, hex: with the priority, the job's place
--        13-23  server ms of its enqueue, hex
--        24-26  attempts spent, hex
--        27-30  deferrals, hex
--        31-32  leases that ran out, hex
--        33     moves between lines
--        34-    header: <tag><length>:<value> ..., ended by '.'; then the payload, which no script reads
local HEAD = 33
local prefix = string.sub(meta, 1, -5)

local function job_key(id)
  return prefix .. 'job:' .. id
end

-- A place orders all jobs of a queue: priority first, then sequence. Exact in a double. nil if this is no record.
local function place_of(record)
  local priority, sequence = string.match(record, '^1([1-4])(%x%x%x%x%x%x%x%x%x%x)')
  if priority then return priority * 1125899906842624 + tonumber(sequence, 16) end
end

local function sequence_hex(n)
  return string.format('%010x', n)
end

local function new_head(priority, sequence, now)
  return '1' .. priority .. sequence_hex(sequence) .. string.format('%011x', now) .. '0000000000'
end

-- The counters, as zero-based offset and width for SETRANGE and GETRANGE.
local ATTEMPTS, DEFERRALS, RECLAIMS = {23, 3}, {26, 4}, {30, 2}

local function counter(head, field)
  return tonumber(string.sub(head, field[1] + 1, field[1] + field[2]), 16)
end

-- Writes one counter of a record; it stops at the largest number its width holds.
local function set_counter(key, field, n)
  local most = 16 ^ field[2] - 1
  call('SETRANGE', key, field[1], string.format('%0' .. field[2] .. 'x', math.min(n, most)))
end

-- A stand-in for a record that the server lost, so that the dead job can be looked at.
local function lost_record(now)
  return new_head('2', 0, now) .. '.'
end
