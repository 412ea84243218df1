-- What a job is judged by: the queue's settings, what it keeps, its limits by name and its own budget. What is wrong there is the answer.
local own, field, value = settings(meta)
if not own then return {'misconfigured', meta, field, value} end
local kept, wrong = read_state(state)
if not kept then return {'corrupt', state, wrong} end
local named, bad_name, bad_text = read_limits(limits)
if not named then return {'misconfigured', limits, bad_name, bad_text} end
local budget = {max = 0, free = math.huge, count = 0}
if own.max > 0 then
  budget = buckets.new(limiter, own.algorithm, own.max, own.duration, own.burst, '')
  local valid, garbage = buckets.read(budget, now)
  if not valid then return {'corrupt', limiter, garbage} end
end
