-- Wake tokens. Idle workers sit in a blocking pop on the list wake; a short list is enough, since a claim that leaves
-- grantable work behind adds the next token. The length is read before the first write.
local tokens = call('LLEN', wake)
local FEW = 64                  -- with at most so much budget left one worker is woken at a time

-- Work can be granted, or a time is to be watched that nobody watches: one more worker wakes, unless as many as can be granted
-- something are on their way. free is the budget left, when that is known. The work is noted as waiting until a claim answers.
local function push_token(free)
  if tokens < ((free and free <= FEW) and 1 or 2) then
    tokens = tokens + 1
    call('LPUSH', wake, '1')
  end
  if kept.want == 0 then
    kept.want = now
    call('HSET', state, 'want', text(now))
  end
end
