-- The audit stream: every script that changes state says what it did, when meta's field audit names how many entries
-- to keep. Stream order is execution order.
if own and own.audit then call('XLEN', audit) end

local function record_audit(op, ...)
  if own and own.audit then
    call('XADD', audit, 'MAXLEN', '~', text(own.audit), '*', 'op', op, 'at', text(now), ...)
  end
end
