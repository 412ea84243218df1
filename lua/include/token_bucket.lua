-- Token bucket: holds burst tokens (max when 0), gains max each window, evenly, and gives one for each unit. Its level is
-- what is missing.
local token_bucket = {
  wait = level.wait, spend = level.spend, refund = level.refund, reset_in = level.reset_in, write = level.write, mark = level.mark,
  charge = level.charge, give_back = level.give_back,
}

function token_bucket.read(b)
  return level.read(b, true) -- a smaller burst leaves the bucket empty, never in debt
end
