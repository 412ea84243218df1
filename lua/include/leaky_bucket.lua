-- Leaky bucket: holds burst units (1 when 0) that leave one after the other, max each window, evenly. Its level is what has
-- not left; a unit leaves when all before it have.
local leaky_bucket = lazily(function(leaky_bucket)
  for _, name in ipairs({'wait', 'spend', 'refund', 'reset_in', 'write', 'mark', 'charge', 'give_back'}) do leaky_bucket[name] = level[name] end
  leaky_bucket.delay = level.reset_in

  function leaky_bucket.read(b)
    return level.read(b, false)
  end
end)
