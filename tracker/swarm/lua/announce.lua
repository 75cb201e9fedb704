-- Adds, renews or removes a visitor. Plain commands draw the peers of its answer afterwards.
-- ARGV: lifetime, info hash, what to do (enter, leave or look), network of the visitor (1 to 3), its address, peer ID,
--   identity, kind, "1" if the event is completed; the limits per host, per AS, of all members, of these per AS and per
--   network; and the reserve of each kind of network
-- Answer: refusal (0 none, 1 full, 2 host, 3 AS, 4 AS in all swarms, 5 network), time, complete, incomplete, partial,
--   downloads, and the number of members in each of the first six keys

local hash, todo, network, address = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local id, identity, kind, completed = ARGV[6], ARGV[7], ARGV[8], ARGV[9] == '1'

local function find()
  for _, k in ipairs({'s', 'l'}) do
    local value = redis.call('HGET', KEYS[place(network, k)], address)
    if value then return value end
  end
end

local function total(field) return tonumber(redis.call('HGET', totals, field) or 0) end

-- room reports whether the visitor fits, or would fit with one member less on the network without.
local function room(without)
  local free = tonumber(ARGV[12])
  for k, n in ipairs(redis.call('HMGET', totals, 1, 2, 3)) do
    n = tonumber(n or 0)
    if k == without then n = n - 1 end
    if k ~= network then n = math.max(n, tonumber(ARGV[15])) end
    free = free - n
  end
  return free > 0
end

-- owned is the number of members of the owner of the address: its AS on SCION, else its network.
local function owned(network, address)
  return total(network == 3 and as_field(address) or network_field(network, address))
end

-- candidate is a random member of another swarm, if the visitor can have its place.
local function candidate(other)
  local prefix = string.sub(swarms, 1, -7) .. other
  local c = {hash = other, index = prefix .. ':i', keys = {}}
  for k, name in ipairs({':4s', ':4o', ':6s', ':6o', ':ss', ':so'}) do c.keys[k] = prefix .. name end
  local members = tonumber(redis.call('HGET', c.index, 'm') or 0)
  local n = math.random(math.max(members, 1))
  for k = 1, 6 do
    local here = redis.call('HLEN', c.keys[k])
    if n <= here then
      c.network = math.floor((k + 1) / 2)
      local got = redis.call('HRANDFIELD', c.keys[k], 1, 'WITHVALUES')
      c.address, c.value, c.alone, c.count = got[1], got[2], members == 1, owned(c.network, got[1])
      return room(c.network) and c
    end
    n = n - here
  end
end

-- evict removes a member of an owner with more members than the visitor's, as share.go does. The keys of other swarms are
-- not among KEYS, which a server without a cluster allows.
local function evict()
  local mine, best = owned(network, address), nil
  for _, other in ipairs(redis.call('ZRANDMEMBER', swarms, 16)) do
    local c = other ~= hash and candidate(other)
    if c and (c.count > mine + 1 or c.alone and c.count > mine) and
      (not best or c.alone and not best.alone or c.alone == best.alone and c.count > best.count) then best = c end
  end
  if not best then return false end
  local my_keys, my_index = keys, index
  keys, index = best.keys, best.index
  drop(best.network, best.address, best.value, best.hash, false)
  keys, index = my_keys, my_index
  return true
end

local function enter()
  local old, fresh = find(), entry(id, identity, kind)
  if old and string.sub(old, 1, 29) == string.sub(fresh, 1, 29) then
    redis.call('HSET', KEYS[place(network, kind)], address, fresh)
    return 0
  end
  if old then
    -- Count a download once: when a peer that lacked something announces that it is complete.
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
  if network == 3 and total(as_field(address)) >= tonumber(ARGV[13]) then return 4 end
  if total(network_field(network, address)) >= tonumber(ARGV[14]) then return 5 end
  if not room() and not evict() then return 1 end
  put(network, address, fresh, hash)
  return 0
end

local refused = 0
if todo == 'enter' then
  refused = enter()
elseif todo == 'leave' then
  local old = find()
  -- With another identity it is another peer, which has this port now and must stay.
  if old and identity_of(old) == identity then drop(network, address, old, hash, false) end
end
local out = {refused, now}
for _, n in ipairs(redis.call('HMGET', index, 'c', 'n', 'p', 'd')) do out[#out + 1] = math.max(tonumber(n or 0), 0) end
for k = 1, 6 do out[#out + 1] = redis.call('HLEN', KEYS[k]) end
return out
