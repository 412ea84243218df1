-- The audit stream: every script that changes state says what it did, when meta's field audit names how many entries
-- to keep. Stream order is execution order.
if audit_size then call('XLEN', audit) end

local function record_audit(op, ...)
  if audit_size then
    call('XADD', audit, 'MAXLEN', '~', text(audit_size), '*', 'op', op, 'at', text(now), ...)
  end
end
