// Package knowledge collects the path measurements of peers, and suggests which peers and paths to
// try first.
//
//	Base             the reports, bounded in memory and in time     knowledge.go
//	path             one path and the votes on it                   path.go
//	graph            links, derived from the paths over them        graph.go
//	Choose, Hints    peers and paths for an answer                  choose.go
//	Snapshot, Merge  for a restart, and for other trackers          snapshot.go
//
// The package reads no clock and opens nothing. Callers pass in time and random numbers.
//
// Reports come from strangers. A report counts only if its path begins in the proven AS of the
// sender and ends in an AS with known peers. Its effects are the order in which peers try things,
// and the first round trips of a connection. So a false report costs each peer that follows it one
// wasted try or some hundred packets. And it reaches few peers:
//
//   - Peers in an AS first hear what the hosts of that AS measured on paths from it. Each host has
//     one vote. Hosts of other ASes have none.
//   - For pairs of ASes without such votes, the votes of the other AS on the opposite direction
//     count.
//   - Without those too, the figures of single links are added up. Each AS has one vote on a link,
//     and a link that only one other AS named is not used.
//   - When the memory is full, the ASes with the most paths lose their oldest ones.
//
// Not solved: an attacker with most hosts of an AS can lie to that AS, and one with many ASes can
// lie about links.
package knowledge

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"braid/pathsel"
	"braid/tracker/wire"
)

// limits bound a Base.
type limits struct {
	paths, perAS, perPair int           // paths in all, from each AS, and from it to one other AS
	votes                 int           // on one path, by hosts in its first AS
	ases                  int           // with peers
	halfLife              time.Duration // in which a vote loses half of its weight
	forget                time.Duration // the age at which a vote is dropped
}

// Forget is the age at which votes are dropped.
const Forget = 2 * time.Hour

var usualLimits = limits{
	paths: 16_384, perAS: 512, perPair: 32, // a path takes 0.5 to 2 kB
	votes: 16, ases: 16_384,
	halfLife: 20 * time.Minute, // about an announce interval, so a vote counts half when its host comes back
	forget:   Forget,
}

// Base is all path knowledge of a tracker. Its methods may be called concurrently. A caller's times
// must not run backwards by much.
type Base struct {
	limits limits
	graph  atomic.Pointer[graph]

	mu      sync.RWMutex
	sources map[pathsel.IA]*source
	paths   int
	met     map[pathsel.IA]time.Time // ASes with peers, and when a peer last announced there
	dirty   bool                     // the graph is older than the paths
	version uint64                   // changes with every vote
}

// source has the paths from one AS.
type source struct {
	to    map[pathsel.IA][]*path
	paths int
}

func New() *Base {
	b := &Base{limits: usualLimits, sources: map[pathsel.IA]*source{}, met: map[pathsel.IA]time.Time{}}
	b.graph.Store(&graph{})
	return b
}

// Meet notes that there are peers in these ASes. Reports of paths to other ASes are ignored.
func (b *Base) Meet(now time.Time, ases ...pathsel.IA) {
	const renewed = time.Minute // more often would only make callers wait for each other
	b.mu.RLock()
	fresh := !slices.ContainsFunc(ases, func(ia pathsel.IA) bool { return now.Sub(b.met[ia]) > renewed })
	b.mu.RUnlock()
	if fresh {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ia := range ases {
		if _, known := b.met[ia]; !known && len(b.met) >= b.limits.ases {
			b.forgetMet()
		}
		b.met[ia] = now
	}
}

// forgetMet makes room for new ASes: it drops the quarter that was silent for longest.
func (b *Base) forgetMet() {
	times := slices.SortedFunc(maps.Values(b.met), time.Time.Compare)
	until := times[len(times)/4]
	maps.DeleteFunc(b.met, func(_ pathsel.IA, at time.Time) bool { return !at.After(until) })
}

// Report adds the votes of a host, and returns how many it accepted: those on paths from the host's
// AS to ASes with peers.
func (b *Base) Report(now time.Time, from wire.Addr, reports []wire.PathReport) (taken int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range reports {
		r := &reports[i]
		empty := r.RTT == 0 && r.Rate == 0
		if _, met := b.met[r.Dst()]; !met || r.Src() != from.IA || r.Age >= b.limits.forget || empty {
			continue
		}
		if p := b.path(now, r.Interfaces); p != nil {
			p.vote(voteOf(from.Host, now, r), b.limits.votes)
			taken++
		}
	}
	b.changed(taken)
	return taken
}

// changed counts new votes, and makes room if there are too many paths.
func (b *Base) changed(votes int) {
	if b.paths > b.limits.paths {
		b.makeRoom()
	}
	if votes > 0 {
		b.dirty = true
		b.version++
	}
}

func voteOf(host netip.Addr, now time.Time, r *wire.PathReport) vote {
	v := vote{host: host, at: now.Add(-r.Age).Truncate(time.Millisecond), rtt: r.RTT.Seconds(), rate: float64(r.Rate)}
	const enough = 20 // packets; in a smaller sample one lost packet means too much
	if r.Sent >= enough {
		v.loss = float64(r.Lost) / float64(r.Sent)
	}
	return v
}

// path finds or adds a path that was seen at that time. It returns nil if all places have newer
// paths.
func (b *Base) path(seen time.Time, ifs []pathsel.Interface) *path {
	src, dst := ifs[0].IA, ifs[len(ifs)-1].IA
	s := b.sources[src]
	if s == nil {
		s = &source{to: map[pathsel.IA][]*path{}}
		b.sources[src] = s
	}
	known := s.to[dst]
	for _, p := range known {
		if slices.Equal(p.interfaces, ifs) {
			if seen.After(p.seen) {
				p.seen = seen
			}
			return p
		}
	}
	var old *path
	switch {
	case len(known) >= b.limits.perPair:
		old = slices.MinFunc(known, (*path).compareSeen)
	case s.paths >= b.limits.perAS:
		old = slices.MinFunc(slices.Collect(s.all), (*path).compareSeen)
	}
	if old != nil {
		if old.seen.After(seen) {
			return nil
		}
		b.drop(s, old)
	}
	p := newPath(ifs, seen)
	s.to[dst] = append(s.to[dst], p)
	s.paths++
	b.paths++
	return p
}

// all are the paths of a source.
func (s *source) all(yield func(*path) bool) {
	for _, paths := range s.to {
		for _, p := range paths {
			if !yield(p) {
				return
			}
		}
	}
}

func (p *path) compareSeen(q *path) int { return p.seen.Compare(q.seen) }

// drop removes a path. The source stays, even if it is empty.
func (b *Base) drop(s *source, p *path) {
	dst := p.dst()
	rest := slices.DeleteFunc(s.to[dst], func(q *path) bool { return p == q })
	if s.to[dst] = rest; len(rest) == 0 {
		delete(s.to, dst)
	}
	s.paths--
	b.paths--
}

// makeRoom lets every AS keep the same number of paths; those with more lose their oldest ones. It
// drops a few more than necessary, so that the next report does not need it again.
func (b *Base) makeRoom() {
	room := b.limits.paths - b.limits.paths/64
	counts := make([]int, 0, len(b.sources))
	for _, s := range b.sources {
		counts = append(counts, s.paths)
	}
	slices.Sort(counts)
	share := 0
	for i, n := range counts { // ASes with few paths leave room for the others
		if share = room / (len(counts) - i); n > share {
			break
		}
		room -= n
	}
	for _, s := range b.sources {
		if s.paths <= share {
			continue
		}
		all := slices.SortedFunc(s.all, (*path).compareSeen)
		for _, p := range all[:len(all)-share] {
			b.drop(s, p)
		}
	}
}

// Refresh drops old votes and computes the figures of links again. The owner calls it every few
// seconds. With a full memory it takes a large part of a second, and blocks other callers for a
// small part of that.
func (b *Base) Refresh(now time.Time) {
	var reported []reportedPath
	b.mu.Lock()
	for ia, s := range b.sources {
		for _, p := range slices.Collect(s.all) { // a copy, since drop changes the paths
			if p.forget(now, b.limits.forget); len(p.votes) == 0 {
				b.drop(s, p)
				b.dirty = true
			}
		}
		if s.paths == 0 {
			delete(b.sources, ia)
		}
	}
	maps.DeleteFunc(b.met, func(_ pathsel.IA, at time.Time) bool {
		return now.Sub(at) > b.limits.forget
	})
	dirty := b.dirty
	if b.dirty = false; dirty {
		for ia, s := range b.sources {
			for p := range s.all {
				if rtt := p.rtt(now, b.limits.halfLife); rtt > 0 {
					reported = append(reported, reportedPath{ia, rtt, p.interfaces})
				}
			}
		}
	}
	b.mu.Unlock()
	if dirty {
		b.graph.Store(newGraph(reported))
	}
}

// Sizes are the sizes of a Base.
type Sizes struct {
	Pairs int `json:"pairs"` // of ASes; each direction counts
	Paths int `json:"paths"`
	Links int `json:"links"`
}

// Known counts the pairs, paths and links.
func (b *Base) Known() Sizes {
	b.mu.RLock()
	defer b.mu.RUnlock()
	k := Sizes{Paths: b.paths, Links: b.graph.Load().links}
	for _, s := range b.sources {
		k.Pairs += len(s.to)
	}
	return k
}
