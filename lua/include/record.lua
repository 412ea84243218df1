-- The job record: one string per job, at <prefix>job:<id>.
--
--   byte  1     priority, '1' (first) to '4'; another layout would begin with another character
--         2-13  sequence, hex: with the priority, the job's place
--        14-24  server ms of its enqueue, hex
--        25-27  attempts spent, hex
--        28-31  deferrals, hex
--        32     leases that ran out, hex
--        33     moves between lines
--        34-    header: <tag><length>:<value> ..., ended by '.'; then the payload, which no script reads
local HEAD = 33
local RECORD = '^([1-4])(' .. string.rep('%x', 12) .. ')' .. string.rep('%x', 20)
local prefix = string.sub(meta, 1, -5)

local function job_key(id)
  return prefix .. 'job:' .. id
end

-- A place orders all jobs of a queue: priority first, then sequence. Exact in a double. nil if this is no record.
local function place_of(record)
  local priority, sequence = string.match(record, RECORD)
  if priority then return priority * 1125899906842624 + tonumber(sequence, 16) end
end

local function sequence_hex(n)
  return string.format('%012x', n)
end

local function new_head(priority, sequence, now)
  return priority .. sequence_hex(sequence) .. string.format('%011x', now) .. '000000000'
end

-- The fields that scripts change, as zero-based offset and width.
local SEQUENCE, ATTEMPTS, DEFERRALS, RECLAIMS = {1, 12}, {24, 3}, {27, 4}, {31, 1}

local function counter(head, field)
  return tonumber(string.sub(head, field[1] + 1, field[1] + field[2]), 16)
end

-- A counter as it is written; it stops at the largest number its width holds.
local function counter_hex(field, n)
  return string.format('%0' .. field[2] .. 'x', math.min(n, 16 ^ field[2] - 1))
end

local function set_counter(key, field, n)
  call('SETRANGE', key, field[1], counter_hex(field, n))
end

-- A stand-in for a record that the server lost, so that the dead job can be looked at.
local function lost_record(now)
  return new_head('2', 0, now) .. '.'
end
