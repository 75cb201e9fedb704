-- Enters a visitor, renews it or takes it out. Others are drawn for it afterwards, by plain commands.
-- ARGV: lifetime, info hash, what to do (enter, leave or look), network of the visitor (1 to 3), its address, peer ID,
--   identity, kind, "1" if it says that it is complete, members at most at a host, in an AS, in all, and of them in an AS
-- Answer: refusal (0 none, 1 full, 2 host, 3 AS, 4 AS in all), time, complete, incomplete, partial, downloads, and how many members each
--   of the first six keys has.

local hash, todo, network, address = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local id, identity, kind, completed = ARGV[6], ARGV[7], ARGV[8], ARGV[9] == '1'

local function find()
  for _, k in ipairs({'s', 'l'}) do
    local value = redis.call('HGET', KEYS[place(network, k)], address)
    if value then return value end
  end
end

local function enter()
  local old, fresh = find(), entry(id, identity, kind)
  if old and string.sub(old, 1, 29) == string.sub(fresh, 1, 29) then
    redis.call('HSET', KEYS[place(network, kind)], address, fresh)
    return 0
  end
  if old then
    -- A download is counted once: when a peer that was known to lack something says that it is complete.
    if completed and kind == 's' and kind_of(old) ~= 's' and identity_of(old) == identity and tally(identity).s == 0 then
      redis.call('HINCRBY', index, 'd', 1)
    end
    drop(network, address, old, hash, true)
    put(network, address, fresh, hash)
    return 0
  end
  local function there(field) return tonumber(redis.call('HGET', index, field) or 0) end
  if there(host_field(network, address)) >= tonumber(ARGV[10]) then return 2 end
  if network == 3 and there(as_field(address)) >= tonumber(ARGV[11]) then return 3 end
  local all = 0
  for _, n in ipairs(redis.call('HMGET', totals, 1, 2, 3)) do all = all + tonumber(n or 0) end
  if all >= tonumber(ARGV[12]) then return 1 end
  if network == 3 and tonumber(redis.call('HGET', totals, as_field(address)) or 0) >= tonumber(ARGV[13]) then return 4 end
  put(network, address, fresh, hash)
  return 0
end

local refused = 0
if todo == 'enter' then
  refused = enter()
elseif todo == 'leave' then
  local old = find()
  -- Another's identity: the port has gone to somebody else, who is not to be taken out.
  if old and identity_of(old) == identity then drop(network, address, old, hash, false) end
end
local out = {refused, now}
for _, n in ipairs(redis.call('HMGET', index, 'c', 'n', 'p', 'd')) do out[#out + 1] = math.max(tonumber(n or 0), 0) end
for k = 1, 6 do out[#out + 1] = redis.call('HLEN', KEYS[k]) end
return out
