-- Leaky bucket: holds burst units (1 when 0) that leave one after the other, max each window, evenly. Its level is what has
-- not left; a unit leaves when all before it have.
local leaky_bucket = {
  wait = level.wait, spend = level.spend, refund = level.refund, reset_in = level.reset_in, write = level.write, mark = level.mark,
  charge = level.charge, give_back = level.give_back,
  delay = level.reset_in,
}

function leaky_bucket.read(b)
  return level.read(b, false)
end
