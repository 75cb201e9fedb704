package swarm

import (
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"

	"braid/pathsel"
	"braid/tracker/wire"
)

// Three rules share the memory between networks:
//
//	share    a network and an AS get only a part; a network is a /24 of IPv4 or a /48 of IPv6,
//	         on SCION within its AS
//	reserve  each kind of network has places that the other kinds cannot take
//	evict    in a full memory, a member of a larger network or AS makes room for one of a smaller;
//	         members that are alone in their swarm go first, since nobody uses them now

// Origin is a host, a network or, with a zero block, an AS.
type Origin struct {
	IA    pathsel.IA
	block [16]byte
}

// HostOf is the unit of the quotas per host. On IPv6 it is a /64, since its owner can use any
// number of addresses in it. On SCION it is a host, since the AS has a quota too.
func HostOf(a wire.Addr) Origin { return hostOf(a.IA, a.Host.As16()) }

func hostOf(ia pathsel.IA, host [16]byte) Origin {
	if ia == 0 && !netip.AddrFrom16(host).Is4In6() {
		clear(host[8:])
	}
	return Origin{ia, host}
}

// networkOf is the block of addresses that usually has a single owner.
func networkOf(ia pathsel.IA, host [16]byte) Origin {
	kept := 6
	if netip.AddrFrom16(host).Is4In6() {
		kept = 12 + 3
	}
	clear(host[kept:])
	return Origin{ia, host}
}

// ownerOf is the origin whose members are counted for an eviction. On SCION it is the AS, since an
// AS can have any number of networks.
func ownerOf(ia pathsel.IA, host [16]byte) Origin {
	if ia != 0 {
		return Origin{IA: ia}
	}
	return networkOf(ia, host)
}

// censusSlots is the number of counters in each row.
const censusSlots = 1 << 16

// census counts the members of each origin over all swarms, in half a megabyte for any number of
// origins. An origin has one counter in each row, and the smaller one is its count. The count is
// too large only if other origins share both counters, which nobody can arrange without the seed.
type census [2][censusSlots]atomic.Int32

func (c *census) counters(s hashSeed, o Origin) (*atomic.Int32, *atomic.Int32) {
	h := maphash.Comparable(s, o)
	return &c[0][h%censusSlots], &c[1][h>>32%censusSlots]
}

func (c *census) of(s hashSeed, o Origin) int {
	a, b := c.counters(s, o)
	return int(min(a.Load(), b.Load()))
}

func (c *census) add(s hashSeed, ia pathsel.IA, host [16]byte, by int32) {
	a, b := c.counters(s, networkOf(ia, host))
	a.Add(by)
	b.Add(by)
	if ia != 0 {
		a, b = c.counters(s, Origin{IA: ia})
		a.Add(by)
		b.Add(by)
	}
}

// reserveParts: each kind of network has a sixteenth of the memory for itself. Without it a kind
// with cheap addresses could take all places. A larger part would stay empty in a tracker for one
// kind.
const reserveParts = 16

// room reports whether one more member of the kind fits, given the members of each kind.
func (l Limits) room(members [kinds]int64, kind int) bool {
	free := int64(l.Members)
	for k, n := range members {
		if k != kind {
			n = max(n, int64(l.Members/reserveParts))
		}
		free -= n
	}
	return free > 0
}

// candidate is a member that may be evicted.
type candidate struct {
	hash  wire.InfoHash
	addr  wire.Addr
	alone bool // in its swarm
	count int  // members of its owner
}

// yields reports whether the candidate must make room for a newcomer whose owner has so many
// members. The candidate's owner must have more members; if the candidate is not alone in its
// swarm, even after the eviction.
func (c candidate) yields(newcomer int) bool {
	return c.count > newcomer+1 || c.alone && c.count > newcomer
}

// before reports whether the candidate is to be evicted rather than the other one.
func (c candidate) before(other candidate) bool {
	if c.alone != other.alone {
		return c.alone
	}
	return c.count > other.count
}

const (
	// evictLook is how many swarms are examined for a member to evict. An owner with a third of
	// them is missed once in 600 times.
	evictLook = 16
	// evictEach bounds the swarms from one shard, so that they come from several.
	evictEach = 4
)

// evict makes room for the visitor by removing a member of a larger owner, if it finds one.
func (m *Memory) evict(v *Visit) bool {
	kind, newcomer := kindOf(v.Addr), m.census.of(m.seed, ownerOf(v.Addr.IA, v.Addr.Host.As16()))
	var best candidate
	looked, first := 0, rand.IntN(shards)
	for i := 0; i < shards && looked < evictLook; i++ {
		s := &m.parts[(first+i)%shards]
		s.mu.Lock()
		here := 0
		for h, t := range s.tables {
			if h != v.InfoHash { // the visitor needs the members of its own swarm
				c, ok := m.candidate(h, t, kind)
				if ok && c.yields(newcomer) && (best.count == 0 || c.before(best)) {
					best = c
				}
			}
			looked++
			if here++; here == evictEach {
				break
			}
		}
		s.mu.Unlock()
	}
	if best.count == 0 {
		return false
	}
	s := m.shard(best.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[best.hash]
	if t == nil || best.alone && t.size > 1 {
		return false // another peer has joined it meanwhile
	}
	i := t.find(m.seed, best.addr)
	if i < 0 {
		return false
	}
	m.drop(s, best.hash, t, t.groups[kindOf(best.addr)], i)
	return true
}

// candidate is a random member of the swarm, and whether its place can be given to a member of the
// kind.
func (m *Memory) candidate(h wire.InfoHash, t *table, kind int) (candidate, bool) {
	n := rand.IntN(int(t.size))
	for k, g := range t.groups {
		if g == nil {
			continue
		}
		if n >= len(g.members) {
			n -= len(g.members)
			continue
		}
		x := &g.members[n]
		members := m.members()
		members[k]--
		count := m.census.of(m.seed, ownerOf(x.ia, x.host))
		return candidate{h, x.addr(), t.size == 1, count}, m.limits.room(members, kind)
	}
	return candidate{}, false
}
