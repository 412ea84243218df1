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
local RECORD = '^([1-4])(%x%x%x%x%x%x%x%x%x%x%x%x)%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x'
local prefix = string.sub(meta, 1, -5)

local function job_key(id)
  return prefix .. 'job:' .. id
end

-- What is stored of a job, or the head of it: '' for nothing and for a key of another type, which is no record either. One that cannot be
-- reached (a slot that moves, a user who may not read it) is not gone: that ends the script.
local function stored(answer)
  if type(answer) == 'string' then return answer end
  if answer and not string.find(answer.err, '^WRONGTYPE') then error(answer) end
  return ''
end

local function read_record(id)
  return stored(redis.pcall('GET', job_key(id)))
end

-- The same without most of the payload, for those who need keys and costs alone. Of what a producer may enqueue these end within 9 KiB:
-- 16 keys of up to 390 bytes and 16 costs of up to 150, after a name of up to 133 and four numbers; only the trace follows them.
local function read_header(id)
  return stored(redis.pcall('GETRANGE', job_key(id), '0', '16383'))
end

local function head_of(id)
  return stored(redis.pcall('GETRANGE', job_key(id), '0', tostring(HEAD - 1)))
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

-- The fields that scripts change: zero-based offset, width, how a number is written in it, the largest that it holds.
local counters = lazily(function(counters)
  counters.sequence, counters.attempts, counters.deferrals = {1, 12}, {24, 3, '%03x', 4095}, {27, 4, '%04x', 65535}
  counters.reclaims, counters.moves = {31, 1, '%x', 15}, {32, 1, '%x', 15}

  function counters.read(head, name)
    local field = counters[name]
    return tonumber(string.sub(head, field[1] + 1, field[1] + field[2]), 16) or 0
  end

  -- A counter as it is written; it stops at the largest number its width holds.
  function counters.hex(name, n)
    local field = counters[name]
    return string.format(field[3], math.min(n, field[4]))
  end

  function counters.write(key, name, n)
    call('SETRANGE', key, counters[name][1], counters.hex(name, n))
  end
end)

-- A stand-in for a record that the server lost, so that the dead job can be looked at.
local function lost_record(now)
  return new_head('2', 0, now) .. '.'
end
