package pathsel

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
	"time"
)

// adaptiveMemory is what the adaptive selector carries from one view to the next. It makes a new one for
// each plan and never changes the one in the view.
type adaptiveMemory struct {
	Paths []PathMemory `json:"paths,omitempty"`
	Peers []PeerMemory `json:"peers,omitempty"`
	// TotalBytes is the sum of BytesRead in the last view, ProbeBytes how much of that probes of
	// parked paths carried.
	TotalBytes uint64 `json:"total_bytes,omitempty"`
	ProbeBytes uint64 `json:"probe_bytes,omitempty"`
	// Quiet is the earliest time for a change that only verifies what is believed; Round counts those
	// changes and varies their jitter.
	Quiet time.Time `json:"quiet,omitzero"`
	Round int       `json:"round,omitempty"`
}

// PathMemory is what the adaptive selector remembers of one path-level peer.
type PathMemory struct {
	Key Key `json:"key"`
	// Why it stands by; Used while it carries pieces or was not yet tried.
	Why Why `json:"why,omitempty"`
	// Tried is when it was last given work.
	Tried time.Time `json:"tried,omitzero"`
	// Next is the earliest time for the next probe of a path that stands by, or for the next examination
	// of one that carries pieces.
	Next time.Time `json:"next,omitzero"`
	// Backoff counts the times in a row that it had to stand by (again), Checks the examinations that
	// found that it adds its own.
	Backoff int `json:"backoff,omitempty"`
	Checks  int `json:"checks,omitempty"`
	// Level is what the others on its bottleneck carried when it was found to add nothing, bytes/s.
	Level float64 `json:"level,omitempty"`
	// Up: its connection was open at the last view. Breaks counts recent failures of an open connection, Broke is when the last was.
	Up     bool      `json:"up,omitempty"`
	Breaks int       `json:"breaks,omitempty"`
	Broke  time.Time `json:"broke,omitzero"`
}

// Why is the cause for which a path stands by. It says what a probe must show.
type Why string

const (
	Used    Why = ""        // it does not stand by
	Shared  Why = "shared"  // others on the same bottleneck carry what it carried
	Weak    Why = "weak"    // next to no bandwidth
	Waste   Why = "waste"   // too much of what it carried was not needed
	Late    Why = "late"    // too slow for the end of the download
	Rotated Why = "rotated" // closed, there are more paths than places
	Surplus Why = "surplus" // one more connection on a path that does not need it
)

// PeerMemory is what the adaptive selector remembers of one address-level peer.
type PeerMemory struct {
	Peer PeerID `json:"peer"`
	// Settled is when the set of connections that carry pieces last changed. Carrying is that set.
	Settled  time.Time `json:"settled,omitzero"`
	Carrying []Key     `json:"carrying,omitempty"`
	// Explored: each of its paths was tried once.
	Explored bool `json:"explored,omitempty"`
	// Started: whether paths with links in common add anything was asked; Group is that question while it is open.
	Started bool   `json:"started,omitempty"`
	Group   *Group `json:"group,omitempty"`
	Trial   *Trial `json:"trial,omitempty"`
	// Displaced is the path whose place is lent to one that was not tried for long.
	Displaced Fingerprint `json:"displaced,omitempty"`
}

// Trial is an experiment under way: one connection was added or taken out, and the others that share a
// link with it (the rest) are watched.
type Trial struct {
	Key    Key       `json:"key"`
	Remove bool      `json:"remove,omitempty"` // it was taken out, else added
	Why    Why       `json:"why,omitempty"`    // why it stood by before it was added
	Began  time.Time `json:"began"`
	// Rest carried Before together, and Own is what the one that was taken out carried.
	Rest   []Key    `json:"rest,omitempty"`
	Before Estimate `json:"before,omitzero"`
	Own    Estimate `json:"own,omitzero"`
	// Bytes is BytesRead of the key when the trial began.
	Bytes uint64 `json:"bytes,omitempty"`
}

// clone makes a memory that shares nothing with the old one.
func (m adaptiveMemory) clone() adaptiveMemory {
	m.Paths, m.Peers = slices.Clone(m.Paths), slices.Clone(m.Peers)
	for i, p := range m.Peers {
		m.Peers[i].Carrying = slices.Clone(p.Carrying)
		if p.Group != nil {
			g := *p.Group
			g.Keys, g.Rest = slices.Clone(g.Keys), slices.Clone(g.Rest)
			m.Peers[i].Group = &g
		}
		if p.Trial != nil {
			t := *p.Trial
			t.Rest = slices.Clone(t.Rest)
			m.Peers[i].Trial = &t
		}
	}
	return m
}

// path returns the memory of that key, made if there was none. The pointer is good until the next call.
func (m *adaptiveMemory) path(k Key) *PathMemory {
	i, found := slices.BinarySearchFunc(m.Paths, k, func(p PathMemory, k Key) int { return compareKeys(p.Key, k) })
	if !found {
		m.Paths = slices.Insert(m.Paths, i, PathMemory{Key: k})
	}
	return &m.Paths[i]
}

// peer returns the memory of that peer, made if there was none. The pointer is good until the next call.
func (m *adaptiveMemory) peer(p PeerID) *PeerMemory {
	i, found := slices.BinarySearchFunc(m.Peers, p, func(x PeerMemory, p PeerID) int { return cmp.Compare(x.Peer, p) })
	if !found {
		m.Peers = slices.Insert(m.Peers, i, PeerMemory{Peer: p})
	}
	return &m.Peers[i]
}

// forget drops what is remembered of paths and peers that are no longer in the view, so that the memory
// stays as small as the view.
func (m *adaptiveMemory) forget(v View) {
	known, peers := make(map[Key]bool, len(v.Candidates)), map[PeerID]bool{}
	for _, c := range v.Candidates {
		known[Key{Peer: c.Key.Peer, Path: c.Key.Path}] = true
		peers[c.Key.Peer] = true
	}
	m.Paths = slices.DeleteFunc(m.Paths, func(p PathMemory) bool { return !known[Key{Peer: p.Key.Peer, Path: p.Key.Path}] })
	m.Peers = slices.DeleteFunc(m.Peers, func(p PeerMemory) bool { return !peers[p.Peer] })
}

// chance is a number from 0 to 1 that depends on nothing but its arguments: clients with different seeds
// draw differently, the same client draws the same again. Without it many clients in the same situation
// would do the same at the same moment.
func chance(seed uint64, k Key, n int) float64 {
	h := fnv.New64a()
	h.Write(strconv.AppendUint(nil, seed, 16))
	h.Write([]byte("|" + string(k.Peer) + "|" + string(k.Path) + "|"))
	h.Write(strconv.AppendInt(strconv.AppendInt(nil, int64(k.Conn), 10), int64(n), 16))
	// FNV mixes its last bytes badly; this is the finisher of splitmix64.
	z := h.Sum64()
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}

// jitter stretches or shrinks d by up to a quarter.
func jitter(d time.Duration, seed uint64, k Key, n int) time.Duration {
	return time.Duration(float64(d) * (0.75 + 0.5*chance(seed, k, n)))
}
