-- The swarm of one torrent. announce.lua and sweep.lua continue this script.
--
-- KEYS 1 to 6: members on IPv4 that are seeds, on IPv4 that are not, the same on IPv6 and on SCION. Each is a hash from
--   address to peer ID (20), identity (8), kind (1: s seed, l leecher, p partial seed), time of the last announce (4).
-- KEYS[7]: the index, a hash:
--   c n p d    complete, incomplete, of these partial seeds, downloads so far
--   m          members
--   i IDENTITY addresses of the peer, as seed, leecher and partial seed (4 each)
--   h HOST     members at the host: the address without its port, or the first half of it on IPv6
--   a ISD-AS   members in an AS of SCION
-- KEYS[8]: all swarms, sorted by when to sweep them next
-- KEYS[9]: totals, a hash: members on each kind of network (1, 2, 3), seeds (s), in each AS of SCION (a ISD-AS), and in each network
--   (n and the first 3 bytes of an IPv4 address, 6 of IPv6, after the ISD-AS on SCION)
-- The first argument is the lifetime of a member in seconds.

-- keys and index belong to the current swarm. Only an eviction switches to another one.
local keys, index, swarms, totals = KEYS, KEYS[7], KEYS[8], KEYS[9]
local now = tonumber(redis.call('TIME')[1])
local lifetime = tonumber(ARGV[1])

-- Sweeps renew it four times in a lifetime, so keys expire only after all trackers are gone.
local function keep(key) redis.call('EXPIRE', key, 2 * lifetime) end

local function entry(id, identity, kind) return id .. identity .. kind .. struct.pack('>I4', now) end
local function identity_of(value) return string.sub(value, 21, 28) end
local function kind_of(value) return string.sub(value, 29, 29) end
local function stale(value) return struct.unpack('>I4', value, 30) + lifetime < now end

local function tally(identity)
  local t = redis.call('HGET', index, 'i' .. identity)
  if not t then return {s = 0, l = 0, p = 0} end
  local s, l, p = struct.unpack('>I4I4I4', t)
  return {s = s, l = l, p = p}
end

local function step(field, was, is)
  if is and not was then redis.call('HINCRBY', index, field, 1) end
  if was and not is then redis.call('HINCRBY', index, field, -1) end
end

-- count updates the numbers of peers after a peer gained or lost an address of a kind.
local function count(identity, kind, by)
  local t = tally(identity)
  local seed, other = t.s > 0, t.s == 0 and t.l + t.p > 0
  local partial = other and t.l == 0
  t[kind] = math.max(t[kind] + by, 0)
  local seed2, other2 = t.s > 0, t.s == 0 and t.l + t.p > 0
  step('c', seed, seed2)
  step('n', other, other2)
  step('p', partial, other2 and t.l == 0)
  if t.s + t.l + t.p == 0 then
    redis.call('HDEL', index, 'i' .. identity)
  else
    redis.call('HSET', index, 'i' .. identity, struct.pack('>I4I4I4', t.s, t.l, t.p))
  end
end

local function occupy(key, field, by)
  if redis.call('HINCRBY', key, field, by) <= 0 then redis.call('HDEL', key, field) end
end

local function host_field(network, address) return 'h' .. string.sub(address, 1, network == 2 and 8 or -3) end
local function as_field(address) return 'a' .. string.sub(address, 1, 8) end
local function network_field(network, address)
  local ia = network == 3 and 8 or 0
  return 'n' .. string.sub(address, 1, ia + (#address - ia == 6 and 3 or 6))
end

local function place(network, kind) return 2 * network - (kind == 's' and 1 or 0) end

-- change counts one member more or less.
local function change(network, address, value, by)
  local kind = kind_of(value)
  count(identity_of(value), kind, by)
  occupy(index, host_field(network, address), by)
  occupy(totals, network_field(network, address), by)
  if network == 3 then
    occupy(index, as_field(address), by)
    occupy(totals, as_field(address), by)
  end
  redis.call('HINCRBY', totals, network, by)
  if kind == 's' then redis.call('HINCRBY', totals, 's', by) end
  return redis.call('HINCRBY', index, 'm', by)
end

local function put(network, address, value, hash)
  local key = keys[place(network, kind_of(value))]
  redis.call('HSET', key, address, value)
  if redis.call('HLEN', key) == 1 then keep(key) end
  if change(network, address, value, 1) == 1 then
    keep(index)
    redis.call('ZADD', swarms, 'NX', now + lifetime / 4, hash)
  end
end

-- drop removes a member, and with the last one the swarm, unless a new member replaces it at once.
local function drop(network, address, value, hash, replaced)
  redis.call('HDEL', keys[place(network, kind_of(value))], address)
  if change(network, address, value, -1) <= 0 and not replaced then
    redis.call('DEL', index)
    redis.call('ZREM', swarms, hash)
  end
end
