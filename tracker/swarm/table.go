package swarm

import (
	"hash/maphash"
	"net/netip"

	"braid/pathsel"
	"braid/tracker/wire"
)

// member is one address of a peer, in 64 bytes without pointers: there are millions.
type member struct {
	ia       pathsel.IA
	identity uint64
	host     [16]byte
	id       wire.PeerID
	seen     uint32 // seconds since the store's epoch
	port     uint16
	flags    flags
}

type flags uint8

const (
	isSeed flags = 1 << iota
	isPaused
)

func (m *member) addr() wire.Addr {
	return wire.Addr{IA: m.ia, Host: netip.AddrFrom16(m.host).Unmap(), Port: m.port}
}

func (m *member) is(a wire.Addr) bool {
	return m.port == a.Port && m.ia == a.IA && m.host == a.Host.As16()
}

func (m *member) peer() wire.Peer { return wire.Peer{ID: m.id, Addr: m.addr()} }

// group holds the members on one network, seeds first.
type group struct {
	members []member
	seeds   int
}

// table is the swarm of one torrent. Its shard's lock guards it.
type table struct {
	groups     [kinds]*group
	index      *index // nil while there are few members, which a linear search finds
	size       int32
	complete   int32
	incomplete int32
	partial    int32 // of the incomplete: partial seeds
	downloaded int32
}

// fewMembers is the size up to which a linear search is as quick as an index. An index doubles the
// memory of a member.
const fewMembers = 16

// index finds members of a large swarm.
type index struct {
	slots      map[uint64]int32 // by hashed address: index in its group
	identities map[uint64]tally
	hosts      map[uint64]int32
	ases       map[pathsel.IA]int32
}

// tally counts the addresses of a peer by its state at each. An attacker with many hosts can give
// one peer as many addresses as the memory holds.
type tally struct{ seeds, leechers, paused uint32 }

func (t tally) add(f flags, by int) tally {
	switch {
	case f&isSeed != 0:
		t.seeds += uint32(by)
	case f&isPaused != 0:
		t.paused += uint32(by)
	default:
		t.leechers += uint32(by)
	}
	return t
}

func (t tally) zero() bool { return t == tally{} }

// hashSeed keeps strangers from choosing addresses with the same hash.
type hashSeed = maphash.Seed

func addrKey(s hashSeed, a wire.Addr) uint64 { return maphash.Comparable(s, a) }

func hostKey(s hashSeed, a wire.Addr) uint64 { return maphash.Comparable(s, HostOf(a)) }

// find is the index of the address in its group, or -1.
func (t *table) find(s hashSeed, a wire.Addr) int {
	g := t.groups[kindOf(a)]
	if g == nil {
		return -1
	}
	if t.index != nil {
		if i, ok := t.index.slots[addrKey(s, a)]; ok && g.members[i].is(a) {
			return int(i)
		}
		return -1
	}
	for i := range g.members {
		if g.members[i].is(a) {
			return i
		}
	}
	return -1
}

func (t *table) each(f func(*member)) {
	for _, g := range t.groups {
		if g == nil {
			continue
		}
		for i := range g.members {
			f(&g.members[i])
		}
	}
}

func (t *table) tally(identity uint64) (n tally) {
	if t.index != nil {
		return t.index.identities[identity]
	}
	t.each(func(m *member) {
		if m.identity == identity {
			n = n.add(m.flags, 1)
		}
	})
	return n
}

// occupied is the number of members at the host of the address, and in its AS.
func (t *table) occupied(s hashSeed, a wire.Addr) (host, as int) {
	if t.index != nil {
		return int(t.index.hosts[hostKey(s, a)]), int(t.index.ases[a.IA])
	}
	h := HostOf(a)
	t.each(func(m *member) {
		if m.ia == a.IA {
			as++
			if hostOf(m.ia, m.host) == h {
				host++
			}
		}
	})
	return host, as
}

// count adds a peer with that tally to the numbers of peers, or takes it away.
func (t *table) count(n tally, by int32) {
	switch {
	case n.seeds > 0:
		t.complete += by
	case n.leechers > 0:
		t.incomplete += by
	case n.paused > 0:
		t.incomplete += by
		t.partial += by
	}
}

func (t *table) add(s hashSeed, m member) {
	before := t.tally(m.identity)
	a := m.addr()
	g := t.groups[kindOf(a)]
	if g == nil {
		g = &group{}
		t.groups[kindOf(a)] = g
	}
	if len(g.members) == cap(g.members) {
		// append would double the capacity, and the last doublings of many small swarms would be a
		// third of all memory.
		g.members = append(make([]member, 0, len(g.members)+max(2, len(g.members)/4)), g.members...)
	}
	g.members = append(g.members, m)
	t.size++
	i := len(g.members) - 1
	if t.index != nil {
		t.index.enter(s, &m, i)
	} else if t.size > fewMembers {
		t.makeIndex(s)
	}
	if m.flags&isSeed != 0 {
		t.swap(s, g, i, g.seeds)
		g.seeds++
	}
	t.count(before, -1)
	t.count(before.add(m.flags, 1), 1)
}

func (t *table) remove(s hashSeed, g *group, i int) {
	m := g.members[i]
	before := t.tally(m.identity)
	if m.flags&isSeed != 0 {
		g.seeds--
		t.swap(s, g, i, g.seeds)
		i = g.seeds
	}
	last := len(g.members) - 1
	t.swap(s, g, i, last)
	g.members = g.members[:last]
	t.size--
	if t.index != nil {
		t.index.leave(s, &m)
	}
	if cap(g.members) > 32 && len(g.members) < cap(g.members)/3 {
		g.members = append(make([]member, 0, len(g.members)*4/3), g.members...)
	}
	if t.index != nil && t.size < fewMembers/2 {
		t.index = nil
	}
	t.count(before, -1)
	t.count(before.add(m.flags, -1), 1)
}

func (t *table) swap(s hashSeed, g *group, i, j int) {
	if i == j {
		return
	}
	g.members[i], g.members[j] = g.members[j], g.members[i]
	if t.index != nil {
		t.index.slots[addrKey(s, g.members[i].addr())] = int32(i)
		t.index.slots[addrKey(s, g.members[j].addr())] = int32(j)
	}
}

func (t *table) makeIndex(s hashSeed) {
	t.index = &index{
		slots: map[uint64]int32{}, identities: map[uint64]tally{},
		hosts: map[uint64]int32{}, ases: map[pathsel.IA]int32{},
	}
	for _, g := range t.groups {
		if g == nil {
			continue
		}
		for i := range g.members {
			t.index.enter(s, &g.members[i], i)
		}
	}
}

func (x *index) enter(s hashSeed, m *member, i int) {
	a := m.addr()
	x.slots[addrKey(s, a)] = int32(i)
	x.identities[m.identity] = x.identities[m.identity].add(m.flags, 1)
	x.hosts[hostKey(s, a)]++
	x.ases[m.ia]++
}

func (x *index) leave(s hashSeed, m *member) {
	a := m.addr()
	delete(x.slots, addrKey(s, a))
	if n := x.identities[m.identity].add(m.flags, -1); n.zero() {
		delete(x.identities, m.identity)
	} else {
		x.identities[m.identity] = n
	}
	h := hostKey(s, a)
	if x.hosts[h]--; x.hosts[h] == 0 {
		delete(x.hosts, h)
	}
	if x.ases[m.ia]--; x.ases[m.ia] == 0 {
		delete(x.ases, m.ia)
	}
}

func (t *table) counts(h wire.InfoHash) wire.Counts {
	return wire.Counts{
		InfoHash: h, Complete: int64(t.complete), Incomplete: int64(t.incomplete),
		Downloaded: int64(t.downloaded), Downloaders: int64(t.incomplete - t.partial),
	}
}
