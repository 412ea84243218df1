-- Token bucket: holds burst tokens (max when 0), gains max each window, evenly, and gives one for each unit. Its level is
-- what is missing.
local token_bucket = lazily(function(token_bucket)
  for _, name in ipairs({'wait', 'spend', 'refund', 'reset_in', 'write', 'mark', 'charge', 'give_back'}) do token_bucket[name] = level[name] end

  function token_bucket.read(b)
    return level.read(b, true) -- a smaller burst leaves the bucket empty, never in debt
  end
end)
