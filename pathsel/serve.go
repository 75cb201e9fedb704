package pathsel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The seeder's side: which peers are served, and over which of their connections. It should not
// undo a leecher's choice of paths, so it only decides where peers compete: for upload slots and
// shared links.

// Upload is a connection over which a peer may download from us. A peer may have several.
type Upload struct {
	Peer   PeerID
	Origin Origin      // its Key is ignored; Peer identifies the peer
	Conn   string      // unique name
	Links  []Interface // of its path, including both ends; empty if unknown
	Wants  bool        // the peer is interested
	Sent   uint64      // bytes so far
}

// UploadView is the input of ServeUploads.
type UploadView struct {
	Now     time.Time
	Uploads []Upload
	// MaxUploads is the number of peers served at a time; 0 means all.
	MaxUploads int
	// Received is the rate at which each peer serves us, in bytes per second. It is nil when we
	// need no data.
	Received map[PeerID]float64
	Memory   UploadMemory
}

// UploadPlan is the output of ServeUploads: Barred connections are choked, all others are not.
type UploadPlan struct {
	Barred map[string]string // connection to reason
	Memory UploadMemory
}

// UploadMemory is passed from one plan to the next view. The zero value is the initial one.
type UploadMemory struct {
	turns   map[PeerID]turn
	tallies map[string]tally // of networks and hosts; "" is the tally of everything
	ranked  time.Time        // when the reciprocating peers were last chosen
	favored []PeerID         // those peers

	peers   []PeerID // the peers of the current arrangement, sorted
	barred  map[string]bool
	phase   phase
	began   time.Time
	marked  time.Time         // when marks were taken; zero before
	marks   map[string]uint64 // Sent by connection
	before  shares            // rates while all connections were open
	nextTry time.Time
	backoff time.Duration
}

// turn is a peer's place in the rotation of served peers.
type turn struct {
	since   time.Time // when its turn began; zero while it waits
	changed time.Time // when it last got or lost its slot
}

// served is how long the peer has had its slot or, as a negative time, has waited for one.
func (t turn) served(now time.Time) time.Duration {
	d := now.Sub(t.changed)
	if t.since.IsZero() {
		d = -d
	}
	return d
}

// tally counts the turns of a network or a host. A newcomer starts at the current count of the
// others.
type tally struct {
	turns int
	clock int       // the count of its last served member, before that turn
	at    time.Time // when it last got a turn
}

const (
	// turnTime is how long a peer is served while others wait: enough to get up to speed and
	// receive some pieces.
	turnTime = 30 * time.Second
	// rankTime is the time between two choices of the peers that serve us best, as in BEP 3.
	rankTime = 10 * time.Second
)

// ServeUploads decides for each connection whether the peer may download over it. It gives upload
// slots to peers, not to connections, and balances shared links over the served peers. Connections
// must have different names.
//
// Slots: a peer that serves us keeps its slot while it is among the best (BEP 3). Each host gets
// one such slot before any host gets two. All other peers take turns: first networks, then hosts in
// each network, then peers on each host (see Origin). The one that has waited longest is next; if
// nobody waits, the one that was served for the shortest time goes on.
//
// Balance: a link divides its rate among connections. So a peer with many paths crowds out a peer
// with one path, and all peers fetch the same data over each link, although one could fetch it and
// pass it on. ServeUploads computes an arrangement from measured rates. It must give the least
// served peer more, or let each link serve fewer peers without making any peer slower. The
// arrangement is tried, and kept if measurements confirm it. When a peer comes or goes, all
// connections are opened again.
func ServeUploads(v UploadView) UploadPlan {
	m := v.Memory
	wanting := map[PeerID]bool{}
	for _, u := range v.Uploads {
		if u.Wants {
			wanting[u.Peer] = true
		}
	}
	peers := slices.Sorted(maps.Keys(wanting))
	served := m.giveSlots(v, peers)
	plan := UploadPlan{Barred: map[string]string{}}
	var active []Upload
	for _, u := range v.Uploads {
		switch {
		case served == nil || served[u.Peer]:
			if u.Wants && len(u.Links) > 0 {
				active = append(active, u)
			}
		default:
			plan.Barred[u.Conn] = fmt.Sprintf("other peers have all %d upload slots", v.MaxUploads)
		}
	}
	m.arrange(v.Now, active)
	for _, u := range active {
		if m.barred[u.Conn] {
			plan.Barred[u.Conn] = "its links are assigned to other peers"
		}
	}
	plan.Memory = m
	return plan
}

// giveSlots returns the peers that are served; nil means all.
func (m *UploadMemory) giveSlots(v UploadView, wanting []PeerID) map[PeerID]bool {
	if v.MaxUploads <= 0 {
		m.turns, m.tallies, m.favored = nil, nil, nil
		return nil
	}
	from := map[PeerID]Origin{}
	for _, u := range v.Uploads {
		if o, known := from[u.Peer]; !known || o.Net == Unproven {
			from[u.Peer] = u.Origin
		}
	}
	turns := map[PeerID]turn{}
	for _, p := range wanting {
		turns[p] = m.turns[p]
	}
	m.turns = turns
	m.rank(v, wanting, from)
	served := map[PeerID]bool{}
	slots := map[string]int{} // of networks and hosts
	give := func(p PeerID) {
		served[p] = true
		slots[from[p].Net]++
		slots[from[p].Host]++
	}
	for _, p := range m.favored {
		if _, ok := turns[p]; ok {
			give(p)
		}
	}
	var holding, rest []PeerID
	for _, p := range wanting {
		switch t := turns[p]; {
		case served[p]:
		case !t.since.IsZero() && v.Now.Sub(t.since) < turnTime:
			holding = append(holding, p)
		default:
			rest = append(rest, p)
		}
	}
	slices.SortStableFunc(holding, func(a, b PeerID) int {
		return turns[b].since.Compare(turns[a].since)
	})
	for i, p := range holding { // with fewer slots than before, the longest served lose theirs
		if len(served) >= v.MaxUploads {
			rest = append(rest, holding[i:]...)
			break
		}
		give(p)
	}
	m.tallies = m.recentTallies(v.Now)
	contested := len(rest) > v.MaxUploads-len(served)
	for len(served) < v.MaxUploads && len(rest) > 0 {
		next := slices.MinFunc(rest, func(a, b PeerID) int {
			x, y := from[a], from[b]
			return cmp.Or(
				slots[x.Net]-slots[y.Net], m.turnsOf(x.Net, "")-m.turnsOf(y.Net, ""),
				slots[x.Host]-slots[y.Host], m.turnsOf(x.Host, x.Net)-m.turnsOf(y.Host, y.Net),
				cmp.Compare(turns[a].served(v.Now), turns[b].served(v.Now)),
			)
		})
		rest = slices.DeleteFunc(rest, func(p PeerID) bool { return p == next })
		give(next)
		// A peer that wins against waiting peers begins a new turn. Without competition its turn
		// continues.
		t := turns[next]
		if t.since.IsZero() {
			t.changed = v.Now
		}
		if contested || t.since.IsZero() {
			turns[next] = turn{since: v.Now, changed: t.changed}
			m.count(from[next], v.Now)
		}
	}
	for _, p := range rest {
		if !turns[p].since.IsZero() {
			turns[p] = turn{changed: v.Now}
		}
	}
	for p := range served {
		if turns[p].since.IsZero() {
			turns[p] = turn{since: v.Now, changed: v.Now}
		}
	}
	return served
}

// rank chooses the peers that keep their slots because they serve us best, if it is time for that.
func (m *UploadMemory) rank(v UploadView, wanting []PeerID, from map[PeerID]Origin) {
	if v.Received == nil {
		m.favored = nil
	} else if m.ranked.IsZero() || v.Now.Sub(m.ranked) >= rankTime {
		m.ranked = v.Now
		m.favored = favor(wanting, v.Received, from)
		m.favored = m.favored[:min(len(m.favored), v.MaxUploads-1)]
	}
}

// turnsOf counts the turns of a network or host. above is the network of a host; "" for a network.
func (m *UploadMemory) turnsOf(name, above string) int {
	return max(m.tallies[name].turns, m.tallies[above].clock)
}

// count counts one more turn of a network and a host in it.
func (m *UploadMemory) count(o Origin, now time.Time) {
	above := ""
	for _, name := range []string{o.Net, o.Host} {
		x, up := m.tallies[name], m.tallies[above]
		x.turns, x.at = m.turnsOf(name, above), now
		up.clock = x.turns
		x.turns++
		m.tallies[above], m.tallies[name] = up, x
		above = name
	}
}

// favor orders the peers that serve us, best first, with one peer of each host before any host's
// second. So nobody gets more slots by serving us under many keys.
func favor(wanting []PeerID, received map[PeerID]float64, from map[PeerID]Origin) []PeerID {
	out := slices.DeleteFunc(slices.Clone(wanting), func(p PeerID) bool { return received[p] <= 0 })
	best := func(a, b PeerID) int { return cmp.Compare(received[b], received[a]) }
	slices.SortStableFunc(out, best)
	ofHost, nth := map[string]int{}, map[PeerID]int{}
	for _, p := range out {
		nth[p] = ofHost[from[p].Host]
		ofHost[from[p].Host]++
	}
	slices.SortStableFunc(out, func(a, b PeerID) int { return cmp.Or(nth[a]-nth[b], best(a, b)) })
	return out
}

// tallyTime is how long the turns of a network or a host are remembered, even if no peer there
// wants more: a peer that returns under another key is not new. maxTallies limits this memory when
// many hosts come and go.
const (
	tallyTime  = 20 * turnTime
	maxTallies = 2048
)

// recentTallies returns the tallies that are not yet forgotten.
func (m *UploadMemory) recentTallies(now time.Time) map[string]tally {
	out := map[string]tally{"": m.tallies[""]}
	for name, x := range m.tallies {
		if now.Sub(x.at) < tallyTime {
			out[name] = x
		}
	}
	if len(out) > maxTallies {
		oldest := slices.SortedFunc(maps.Keys(out), func(a, b string) int {
			return cmp.Or(out[a].at.Compare(out[b].at), cmp.Compare(a, b))
		})
		for _, name := range oldest[:len(out)/2] {
			if name != "" {
				delete(out, name)
			}
		}
	}
	return out
}
