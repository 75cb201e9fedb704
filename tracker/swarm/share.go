package swarm

import (
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"

	"braid/pathsel"
	"braid/tracker/wire"
)

// The memory is shared out in three ways:
//
//	share    a network (a /24 of IPv4, a /48 of IPv6, on SCION within its AS) and an AS hold only a part of all members
//	reserve  each kind of network has places that the other kinds cannot take
//	evict    in a full memory the network or AS with the most members gives way to one with fewer; members who are alone
//	         in their swarm, and so of no use to anybody now, go first

// origin is a network or, with a zero block, an AS.
type origin struct {
	ia    pathsel.IA
	block [16]byte
}

// networkOf is what one owner has as a rule. Whoever has an address of it has them all.
func networkOf(ia pathsel.IA, host [16]byte) origin {
	kept := 6
	if netip.AddrFrom16(host).Is4In6() {
		kept = 12 + 3
	}
	clear(host[kept:])
	return origin{ia, host}
}

// ownerOf is whose members are compared when the memory is full: on SCION an AS, which has as many networks as it likes.
func ownerOf(ia pathsel.IA, host [16]byte) origin {
	if ia != 0 {
		return origin{ia: ia}
	}
	return networkOf(ia, host)
}

// censusSlots is the number of counters in each row.
const censusSlots = 1 << 16

// census counts the members of each origin over all swarms, in half a megabyte however many origins there are. An origin has one
// counter in each row, and the smaller one is its count: too large only if it shares both with others, which nobody can
// arrange without the seed.
type census [2][censusSlots]atomic.Int32

func (c *census) counters(s hashSeed, o origin) (*atomic.Int32, *atomic.Int32) {
	h := maphash.Comparable(s, o)
	return &c[0][h%censusSlots], &c[1][h>>32%censusSlots]
}

func (c *census) of(s hashSeed, o origin) int {
	a, b := c.counters(s, o)
	return int(min(a.Load(), b.Load()))
}

func (c *census) add(s hashSeed, ia pathsel.IA, host [16]byte, by int32) {
	a, b := c.counters(s, networkOf(ia, host))
	a.Add(by)
	b.Add(by)
	if ia != 0 {
		a, b = c.counters(s, origin{ia: ia})
		a.Add(by)
		b.Add(by)
	}
}

// reserveParts is the part of the memory that each kind of network has for itself. Without it the addresses of one kind,
// which may be cheap, leave no room for the others; a larger part would be empty in a tracker for one kind.
const reserveParts = 16

// room tells whether a member of the kind fits beside so many of each.
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

// candidate is a member who may have to go.
type candidate struct {
	hash  wire.InfoHash
	addr  wire.Addr
	alone bool // in its swarm
	count int  // members of its owner
}

// yields tells whether the candidate has to make room for a newcomer whose owner has so many members. Where it would leave
// others behind, its owner must have more than the newcomer's also afterwards.
func (c candidate) yields(newcomer int) bool {
	return c.count > newcomer+1 || c.alone && c.count > newcomer
}

// before tells whether the candidate is to go rather than another one.
func (c candidate) before(other candidate) bool {
	if c.alone != other.alone {
		return c.alone
	}
	return c.count > other.count
}

const (
	// evictLook is how many swarms are looked at for a member to evict: one who holds a third of them is missed once in 600.
	evictLook = 16
	// evictEach of them in one shard, so that they are not all of one.
	evictEach = 4
)

// evict makes room for the visitor if another's owner has more than its part.
func (m *Memory) evict(v *Visit) bool {
	kind, newcomer := kindOf(v.Addr), m.census.of(m.seed, ownerOf(v.Addr.IA, v.Addr.Host.As16()))
	var best candidate
	looked, first := 0, rand.IntN(shards)
	for i := 0; i < shards && looked < evictLook; i++ {
		s := &m.parts[(first+i)%shards]
		s.mu.Lock()
		here := 0
		for h, t := range s.tables {
			if h != v.InfoHash { // the visitor's company
				if c, ok := m.candidate(h, t, kind); ok && c.yields(newcomer) && (best.count == 0 || c.before(best)) {
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
		return false // somebody has come meanwhile
	}
	i := t.find(m.seed, best.addr)
	if i < 0 {
		return false
	}
	m.drop(s, best.hash, t, t.groups[kindOf(best.addr)], i)
	return true
}

// candidate is a random member of the swarm whose place can be given to one of the kind.
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
		return candidate{h, x.addr(), t.size == 1, m.census.of(m.seed, ownerOf(x.ia, x.host))}, m.limits.room(members, kind)
	}
	return candidate{}, false
}
