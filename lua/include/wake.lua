-- Wake tokens. Idle workers sit in a blocking pop on the list wake; a short list is enough, since a claim that leaves
-- grantable work behind adds the next token. The length is read before the first write.
local tokens = call('LLEN', wake)

local function push_token()
  if tokens < 2 then
    tokens = tokens + 1
    call('LPUSH', wake, '1')
  end
end
