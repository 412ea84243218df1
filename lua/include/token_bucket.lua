-- Token bucket: holds burst tokens (max when 0), gains max each window, evenly, and gives one for each unit. Its level is
-- what is missing.
local token_bucket = {
  wait = level.wait, spend = level.spend, refund = level.refund, reset_in = level.reset_in, write = level.write,
}

function token_bucket.read(b)
  b.cap = b.burst > 0 and b.burst or b.max
  return level.read(b, true) -- a smaller burst leaves the bucket empty, never in debt
end
