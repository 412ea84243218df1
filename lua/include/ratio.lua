-- Exact ratios of integers up to 2^53-1. A plain a / b or % is rounded above 2^53/b; fmod is not.

local function quotient(a, b)
  return (a - math.fmod(a, b)) / b
end

local function quotient_up(a, b)
  local rest = math.fmod(a, b)
  return (a - rest) / b + (rest > 0 and 1 or 0)
end

-- n * a / b, rounded up; at most MOST.
local function scale_up(n, a, b)
  if n * a <= MOST then return quotient_up(n * a, b) end
  local rest = math.fmod(n, b)
  local most = (n - rest) / b * a
  -- rest * a / b by long multiplication: up is the quotient so far and left the remainder, below b.
  local up, left, bit = 0, 0, 4503599627370496
  while bit >= 1 do
    up = up * 2
    if left >= b - left then
      up, left = up + 1, left - (b - left)
    else
      left = left * 2
    end
    if a >= bit then
      a = a - bit
      if left >= b - rest then
        up, left = up + 1, left - (b - rest)
      else
        left = left + rest
      end
    end
    bit = bit / 2
  end
  return math.min(MOST, most + up + (left > 0 and 1 or 0))
end
