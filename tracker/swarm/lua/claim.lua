-- Returns swarms to sweep, and gives them a new date, so that no other tracker sweeps them too.
-- KEYS: swarms, totals. ARGV: lifetime, how many.
local now, lifetime = tonumber(redis.call('TIME')[1]), tonumber(ARGV[1])
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, 2 * lifetime) end
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])
for _, hash in ipairs(due) do redis.call('ZADD', KEYS[1], 'XX', now + lifetime / 4, hash) end
return due
