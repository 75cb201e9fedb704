-- Removes members older than the lifetime. It examines about a thousand at a time, since all other requests wait.
-- ARGV: lifetime, info hash, number of the key to continue with, cursor in it.
-- Answer: the next number and cursor, or nothing at the end.

local hash, k, cursor = ARGV[2], tonumber(ARGV[3]), ARGV[4]
for _, key in ipairs(KEYS) do
  if key ~= swarms and key ~= totals then keep(key) end
end
local looked = 0
while k <= 6 and looked < 1000 do
  local got = redis.call('HSCAN', KEYS[k], cursor, 'COUNT', 250)
  cursor = got[1]
  for i = 1, #got[2], 2 do
    looked = looked + 1
    if stale(got[2][i + 1]) then drop(math.floor((k + 1) / 2), got[2][i], got[2][i + 1], hash, false) end
  end
  if cursor == '0' then k = k + 1 end
end
if k <= 6 then return {tostring(k), cursor} end
-- An eviction or an operator may have emptied the swarm.
if redis.call('EXISTS', index) == 0 then redis.call('ZREM', swarms, hash) end
return {}
