-- Leases that a new concurrency limit found running and that are not counted yet; nothing is granted before they are.
local counting = {members = call('ZRANGE', uncounted, '0', '127', 'WITHSCORES'), leases = {}}
for i = 1, #counting.members, 2 do
  local member = counting.members[i]
  local till = call('ZSCORE', active, member)
  local record = till and tonumber(till) > now and read_header(string.match(member, '^[^|]*')) or ''
  if place_of(record) then table.insert(counting.leases, {member, till, leased.count(member, record, named)}) end
end

function counting.write()
  for i = 1, #counting.members, 2 do call('ZREM', uncounted, counting.members[i]) end
  leased.write(counting.leases)
end
