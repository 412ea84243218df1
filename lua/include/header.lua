-- The headers of records: the keys and costs of jobs.
local headers = lazily(function(headers)
  local none, match, find, sub = {}, string.match, string.find, string.sub -- locals, since each job comes through here

  -- The keys and costs that a job carries; the names of the keys are added to names, if it is given, in their order.
  function headers.read(record, names)
    local keys, costs, at = none, none, HEAD + 1
    while true do
      local tag, size, from = match(record, '^(%a)(%d+):()', at)
      if not tag then return keys, costs end
      at = from + size
      local equals = (tag == 'k' or tag == 'c') and find(record, '=', from, true)
      if equals and equals < at then
        local name, value = sub(record, from, equals - 1), sub(record, equals + 1, at - 1)
        if tag == 'k' then
          if keys == none then keys = {} end
          keys[name] = value
          if names then names[#names + 1] = name end
        else
          if costs == none then costs = {} end
          costs[name] = value
        end
      end
    end
  end

  -- The value of one key, if the header begins with it; nil if not, which says nothing.
  local first = {}
  function headers.first(record, name)
    local pattern = first[name]
    if not pattern then
      pattern = '^k(%d+):' .. string.gsub(name, '%W', '%%%0') .. '=()'
      first[name] = pattern
    end
    local size, from = match(record, pattern, HEAD + 1)
    return size and sub(record, from, from + size - #name - 2)
  end

  -- The header of a record as it is stored, without its end.
  function headers.text(record)
    local at = HEAD + 1
    while true do
      local size, from = string.match(record, '^%a(%d+):()', at)
      if not size then return string.sub(record, HEAD + 1, at - 1) end
      at = from + size
    end
  end
end)
