-- The queue's own settings, field by field from meta. What is wrong there closes the queue: it never counts as unlimited.

-- How many entries the audit stream keeps; nil for no audit. It holds while other settings are wrong.
local audit_size

-- Returns the settings, or nil with the field and the value that are wrong.
local function settings(meta)
  local v = call('HMGET', meta, 'max', 'duration', 'algorithm', 'paused', 'layout', 'audit')
  audit_size = whole(v[6])
  local own = {layout = v[5]}
  if v[5] and v[5] ~= '1' then return nil, 'layout', v[5] end
  own.max = whole(v[1] or '0')
  if not own.max then return nil, 'max', v[1] end
  own.duration = whole(v[2] or '1000')
  if not own.duration or own.duration < 1 then return nil, 'duration', v[2] end
  if v[3] and v[3] ~= 'fixed_window' then return nil, 'algorithm', v[3] end
  own.paused = v[4] and v[4] ~= '' and v[4] ~= '0'
  if v[6] and not audit_size then return nil, 'audit', v[6] end
  return own
end
