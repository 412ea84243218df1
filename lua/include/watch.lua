-- Who wakes when nobody else does: three processes, by roles that end by themselves and that the calls of others take over. The
-- holder has set a timer for the alarm, the next time at which something is known to come. The deputy looks often whether work
-- waits that nobody answers for: the holder died, a token went to a process that is gone. The guard looks now and then, in case
-- that both are gone; and so does everybody else, rarely. A process without a name takes no role.
local watch = {
  changes = {},                 -- fields of the state and their values
  deputy = 800, deputy_term = 2000,   -- ms from look to look, and until the role is free again
  guard = 10000, guard_term = 12000,
  net = 300000,
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

-- Has a role come to its end? One that the clock stepped back from has.
function watch.ended(role)
  local till = kept[role .. '_till']
  return till <= now or till > now + watch[role .. '_term']
end

-- Gives the process a role, or lets it keep one that it has.
function watch.give(role, process)
  local term = watch[role .. '_term']
  if kept[role] ~= process or kept[role .. '_till'] < now + term / 2 then watch.keep(role .. '_till', now + term) end
  watch.keep(role, process)
end

-- Takes a role that is free or that its holder has beside a nearer one; keeps those that the process has.
function watch.take(process)
  local k = kept
  if process == '' then return end
  if k.deputy == process or watch.ended('deputy') or (k.deputy == k.holder and k.holder ~= process) then watch.give('deputy', process) end
  local near = process == k.holder or process == k.deputy
  if near then
    if k.guard == process then watch.drop('guard') end
  elseif k.guard == process or k.guard == '' or watch.ended('guard') or k.guard == k.holder or k.guard == k.deputy then
    watch.give('guard', process)
  end
end

function watch.drop(role)
  watch.keep(role, '')
  watch.keep(role == 'holder' and 'alarm' or role .. '_till', 0)
end

-- In how many ms the process is to claim by itself, -1 for not; and in how many it is to look.
function watch.timers(process)
  local alarm = kept.holder == process and process ~= '' and kept.alarm > 0 and math.max(0, kept.alarm - now) or -1
  return alarm, kept.deputy == process and watch.deputy or kept.guard == process and watch.guard or watch.net
end

function watch.write()
  if #watch.changes > 0 then call('HSET', state, unpack(watch.changes)) end
end
