package dht

import (
	"crypto/sha1"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"braid/pathsel"
)

// What a node keeps for others is bounded by number, by source and by time.
const (
	// peerLife and itemLife are how long a peer or an item is kept unless it comes again. Clients
	// announce at least every half hour; BEP 44 asks for an item every hour.
	peerLife, itemLife = 45 * time.Minute, 2 * time.Hour
	maxPeers           = 20_000
	maxSwarm           = 200 // peers of one torrent; nobody asks for more
	maxPorts           = 4   // peers of one host in a torrent
	maxItems           = 2000
	// share is the part of everything that one network may have: a sixteenth.
	share = 16
	// maxValuesSent is the number of peers in an answer, chosen at random.
	maxValuesSent = 40
)

// unproven is the group of those on SCION whose ISD-AS is only their word.
var unproven = group{ia: pathsel.IA(math.MaxUint64)}

// Origin is where a message came from.
type Origin struct {
	Addr Addr
	// Proven says that the sender's ISD-AS is no mere claim. It is true on IP.
	Proven bool
	Size   int // of the message in bytes
}

func (o Origin) group() group {
	if !o.Proven {
		return unproven
	}
	return groupOf(o.Addr)
}

type storedPeer struct {
	addr  Addr
	group group
	at    time.Time
	seed  bool
}

type storedItem struct {
	*Item
	group group
	at    time.Time
}

// store is what a node keeps for others.
type store struct {
	swarms map[ID][]storedPeer
	peers  int
	items  map[ID]storedItem
}

// announce keeps a peer. In a full torrent it replaces an old one; a network that has its share of
// everything gets no more. A peer whose ISD-AS is unproven takes no place from a proven one at the
// address that it claims.
func (s *store) announce(now time.Time, hash ID, p storedPeer) {
	p.at = now
	swarm := s.swarms[hash]
	sameHost, oldestOfHost := 0, -1
	for i, x := range swarm {
		if x.addr == p.addr {
			if p.group != x.group && (p.group == unproven || !s.mayGrow(p.group)) {
				p.group = x.group
			}
			swarm[i] = p
			return
		}
		if x.addr.IA == p.addr.IA && x.addr.Host == p.addr.Host && x.group == p.group {
			if sameHost++; oldestOfHost < 0 || x.at.Before(swarm[oldestOfHost].at) {
				oldestOfHost = i
			}
		}
	}
	switch {
	case sameHost >= maxPorts:
		swarm[oldestOfHost] = p
		return
	case len(swarm) >= maxSwarm:
		if g := largest(swarm); g == p.group || s.mayGrow(p.group) {
			swarm[oldest(swarm, g)] = p
		}
		return
	case s.peers >= maxPeers || !s.mayGrow(p.group):
		return
	}
	if s.swarms == nil {
		s.swarms = map[ID][]storedPeer{}
	}
	s.swarms[hash] = append(swarm, p)
	s.peers++
}

// mayGrow reports whether one more peer of a network is within its share.
func (s *store) mayGrow(g group) bool {
	if s.peers < maxPeers/share || !g.limited() {
		return true
	}
	n := 0
	for _, swarm := range s.swarms {
		for _, p := range swarm {
			if p.group == g {
				n++
			}
		}
	}
	return n < maxPeers/share
}

// largest is the network with most peers in a swarm.
func largest(swarm []storedPeer) (most group) {
	n := map[group]int{}
	for _, p := range swarm {
		if n[p.group]++; n[p.group] > n[most] {
			most = p.group
		}
	}
	return most
}

func oldest(swarm []storedPeer, g group) int {
	best := -1
	for i, p := range swarm {
		if p.group == g && (best < 0 || p.at.Before(swarm[best].at)) {
			best = i
		}
	}
	return best
}

// sample returns some of a torrent's peers.
func (s *store) sample(hash ID, r *rand.Rand) (out []Addr) {
	swarm := s.swarms[hash]
	for _, i := range r.Perm(len(swarm))[:min(len(swarm), maxValuesSent)] {
		out = append(out, swarm[i].addr)
	}
	return out
}

// put keeps an item, whose signature was checked.
func (s *store) put(now time.Time, i *Item, g group) *badItem {
	target := i.Target()
	old, there := s.items[target]
	if there {
		if bad := i.replaces(old.Item); bad != nil {
			return bad
		}
		g = old.group // anybody may put the same item again, which frees nobody's share
	} else if !s.itemRoom(g) {
		return &badItem{ErrServer, "no room"}
	}
	if s.items == nil {
		s.items = map[ID]storedItem{}
	}
	s.items[target] = storedItem{i, g, now}
	return nil
}

func (s *store) itemRoom(g group) bool {
	n := 0
	for _, x := range s.items {
		if x.group == g {
			n++
		}
	}
	return len(s.items) < maxItems && (!g.limited() || n < maxItems/share)
}

// expire forgets what is old.
func (s *store) expire(now time.Time) {
	s.peers = 0
	for hash, swarm := range s.swarms {
		swarm = slices.DeleteFunc(swarm, func(p storedPeer) bool { return now.Sub(p.at) > peerLife })
		if s.swarms[hash] = swarm; len(swarm) == 0 {
			delete(s.swarms, hash)
		}
		s.peers += len(swarm)
	}
	for target, i := range s.items {
		if now.Sub(i.at) > itemLife {
			delete(s.items, target)
		}
	}
}

// filterLen is the size of a BEP 33 Bloom filter in bytes.
const filterLen = 256

// filters are the Bloom filters of a torrent's seeds and its other peers.
func (s *store) filters(hash ID) (seeds, others string) {
	var f [2][filterLen]byte
	for _, p := range s.swarms[hash] {
		addToFilter(&f[flag(!p.seed)], p.addr)
	}
	return string(f[0][:]), string(f[1][:])
}

// addToFilter adds a host: two of 2048 bits. On SCION the ISD-AS stands before the host.
func addToFilter(f *[filterLen]byte, a Addr) {
	a.Port = 0
	b := a.AppendCompact(nil)
	h := sha1.Sum(b[:len(b)-2])
	for i := range 2 {
		bit := (int(h[2*i]) | int(h[2*i+1])<<8) % (8 * filterLen)
		f[bit/8] |= 1 << (bit % 8)
	}
}
