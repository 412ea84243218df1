-- Who wakes when nobody else does. The holder has set a timer for the alarm, the next time at which something is known to come. The deputy
-- looks often whether work waits that nobody answers for: the holder died, a token went to a process that is gone. In case that both are
-- gone all others look in turns, so that of the whole fleet one does every 2.5 s. Roles end by themselves, and the calls of others take
-- them over. A process without a name takes no part.
local watch = {
  changes = {},                 -- fields of the state and their values
  often = 800, term = 2000,     -- of the deputy: ms from look to look, and until the role is free again
  turn = 2500, longest = 600000, -- of the others: ms from turn to turn, and until the last one at most
}

function watch.keep(field, value)
  if kept[field] == value then return end
  kept[field] = value
  table.insert(watch.changes, field)
  table.insert(watch.changes, type(value) == 'number' and text(value) or value)
end

-- Sets the alarm. due is the server ms of what comes next, 0 for nothing, nil where work is there now and the answer to it knows more.
function watch.alarm(process, due)
  local past = kept.alarm <= now
  local mine = process ~= '' and kept.holder == process
  if process ~= '' and due and due > 0 and (past or mine or due < kept.alarm) then
    watch.keep('alarm', due)
    watch.keep('holder', process)
  elseif past or (mine and due) then
    watch.keep('alarm', 0)
    watch.keep('holder', '')
  end
end

-- Makes the process the deputy, if nobody is, or the holder is it too; a deputy stays it as long as it is heard of.
function watch.deputize(process)
  local k = kept
  local over = k.deputy_till <= now or k.deputy_till > now + watch.term -- the clock stepped back
  if process == '' or not (k.deputy == process or over or (k.deputy == k.holder and k.holder ~= process)) then return end
  if k.deputy ~= process or over or k.deputy_till < now + watch.term / 2 then watch.keep('deputy_till', now + watch.term) end
  watch.keep('deputy', process)
end

-- Gives up what the process has; returns whether that was anything.
function watch.leave(process)
  local held, deputized = kept.holder == process, kept.deputy == process
  if held then
    watch.keep('holder', '')
    watch.keep('alarm', 0)
  end
  if deputized then
    watch.keep('deputy', '')
    watch.keep('deputy_till', 0)
  end
  return held or deputized
end

-- In how many ms the process is to claim by itself, -1 for not; and in how many it is to look, -1 for when it was told before. One whose
-- turn is over gets the next.
function watch.timers(process, over)
  local alarm = kept.holder == process and process ~= '' and kept.alarm > 0 and math.max(0, kept.alarm - now) or -1
  if kept.deputy == process then return alarm, watch.often end
  if not over then return alarm, -1 end
  local last = kept.net > now + watch.longest and now or math.max(kept.net, now)
  watch.keep('net', last + watch.turn)
  return alarm, kept.net - now
end

function watch.write()
  if #watch.changes > 0 then call('HSET', state, unpack(watch.changes)) end
end
