-- What is closed until a time, in the sorted set closed: 'queue', or <key>:<value> for the jobs that carry that key value.
local some_closed = call('ZCARD', closed) > 0

-- The ms from now until it opens; 0 if it is not closed.
local function closed_for(what)
  local till = some_closed and call('ZSCORE', closed, what)
  return till and math.max(0, tonumber(till) - now) or 0
end

local closing = lazily(function(closing)
  -- A bucket that grants nothing until then. The name of a limit never begins with '='.
  local shut = {
    wait = function(b) return b.shut end,
    spend = function() end,
    reset_in = function(b) return b.shut end,
    write = function() end,
  }

  function closing.bucket(what, ms)
    return {id = '=' .. what, key = closed, rule = shut, shut = ms, now = now, cap = math.huge, free = 0, max = 0}
  end

  -- The bucket of a key value that is closed, by its name in lines.
  function closing.id(key, value)
    return '=' .. key .. ':' .. limited.encoded(value)
  end
end)
