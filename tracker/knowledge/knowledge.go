// Package knowledge remembers what peers have measured of paths, and says whom and what to try first.
//
//	Base    reports in, bounded in memory, forgetting        knowledge.go
//	path    one path and the votes on it                     path.go
//	graph   links, from the paths that lead over them        graph.go
//	Choose  peers for one who asks, near ones among them     choose.go
//	Snapshot, Merge  for one that comes after or stands beside   snapshot.go
//
// It reads no clock, draws no lots and opens nothing: time and chance are handed in.
//
// Reports come from strangers. What is taken from one begins in the AS that it came from, which a network of SCION vouches
// for, and leads to an AS in which peers are known. What follows from it is only an order of what to try: a false
// report costs those who follow it one wasted try. And it reaches few:
//
//   - What the hosts of an AS say of the paths from it, each with one vote, counts first for those who ask in that AS. Others
//     can neither add to it nor speak against it.
//   - Only for ASes of which it knows nothing itself an AS is told what the other side says of the way between them.
//   - Only where that is missing too the figures of single links are added up, on which each AS has one vote, and
//     of those that one AS alone has named it is told nothing.
//   - When the memory is full, ASes that fill more of it than others lose their oldest paths.
//
// Not solved: who controls the majority of hosts in an AS can lie to that AS, and who controls many ASes about links.
package knowledge

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"braid/pathsel"
	"braid/tracker/wire"
)

// Limits bound a Base. Zero values are replaced by the defaults.
type Limits struct {
	// Paths in all, of each reporting AS, and of it to one other AS. One takes 0.5 to 2 kB.
	Paths, PerAS, PerPair int
	// Votes on one path, of the hosts in the AS that it begins in.
	Votes int
	// ASes with peers that are remembered.
	ASes int
	// HalfLife is the time in which a measurement loses half of its weight, Forget when it is dropped.
	HalfLife, Forget time.Duration
}

// The default limits.
const (
	DefaultPaths   = 16_384
	DefaultPerAS   = 512
	DefaultPerPair = 32
	DefaultVotes   = 16
	DefaultASes    = 16_384
	// DefaultHalfLife is about an announce interval: what a peer says counts half when it comes back.
	DefaultHalfLife = 20 * time.Minute
	DefaultForget   = 2 * time.Hour
)

func (l Limits) withDefaults() Limits {
	l.Paths, l.PerAS, l.PerPair = cmp.Or(l.Paths, DefaultPaths), cmp.Or(l.PerAS, DefaultPerAS), cmp.Or(l.PerPair, DefaultPerPair)
	l.Votes, l.ASes = cmp.Or(l.Votes, DefaultVotes), cmp.Or(l.ASes, DefaultASes)
	l.HalfLife, l.Forget = cmp.Or(l.HalfLife, DefaultHalfLife), cmp.Or(l.Forget, DefaultForget)
	return l
}

// Base is what is known. All methods may be called at once. A caller's times must not run backwards by much.
type Base struct {
	limits Limits
	graph  atomic.Pointer[graph]

	mu      sync.RWMutex
	sources map[pathsel.IA]*source
	paths   int
	met     map[pathsel.IA]time.Time // ASes with peers, when last heard of
	dirty   bool                     // the graph is older than the paths
	version uint64                   // counts what was taken in
}

// source is what was reported from one AS.
type source struct {
	to    map[pathsel.IA][]*path
	paths int
}

// New is an empty base.
func New(l Limits) *Base {
	b := &Base{limits: l.withDefaults(), sources: map[pathsel.IA]*source{}, met: map[pathsel.IA]time.Time{}}
	b.graph.Store(&graph{})
	return b
}

// Meet notes that there are peers in these ASes. Paths to others are not taken.
func (b *Base) Meet(now time.Time, ases ...pathsel.IA) {
	const renewed = time.Minute // noting it more often would only make callers wait for each other
	b.mu.RLock()
	fresh := !slices.ContainsFunc(ases, func(ia pathsel.IA) bool { return now.Sub(b.met[ia]) > renewed })
	b.mu.RUnlock()
	if fresh {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ia := range ases {
		if _, known := b.met[ia]; !known && len(b.met) >= b.limits.ASes {
			b.forgetMet()
		}
		b.met[ia] = now
	}
}

// forgetMet makes room: those that were not heard of for longest go, a quarter of all at once.
func (b *Base) forgetMet() {
	times := make([]time.Time, 0, len(b.met))
	for _, at := range b.met {
		times = append(times, at)
	}
	slices.SortFunc(times, time.Time.Compare)
	until := times[len(times)/4]
	for ia, at := range b.met {
		if !at.After(until) {
			delete(b.met, ia)
		}
	}
}

// Report takes what a host has measured, and tells how many of the reports it believes to be about paths from the host's AS
// to others with peers.
func (b *Base) Report(now time.Time, from wire.Addr, reports []wire.PathReport) (taken int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range reports {
		r := &reports[i]
		if _, met := b.met[r.Dst()]; !met || r.Src() != from.IA || r.Age >= b.limits.Forget || r.RTT == 0 && r.Rate == 0 {
			continue
		}
		if p := b.path(now, r.Interfaces); p != nil {
			p.vote(voteOf(from.Host, now, r), b.limits.Votes)
			taken++
		}
	}
	b.took(taken)
	return taken
}

// took notes that so many votes were taken, and makes room if there are too many paths now.
func (b *Base) took(votes int) {
	if b.paths > b.limits.Paths {
		b.level()
	}
	if votes > 0 {
		b.dirty = true
		b.version++
	}
}

func voteOf(host netip.Addr, now time.Time, r *wire.PathReport) vote {
	v := vote{host: host, at: now.Add(-r.Age).Truncate(time.Millisecond), rtt: r.RTT.Seconds(), rate: float64(r.Rate)}
	const few = 20 // packets: of fewer a single one lost would say much too much
	if r.Sent >= few {
		v.loss = float64(r.Lost) / float64(r.Sent)
	}
	return v
}

// path finds the path that was seen then, or makes it; nil if there is only room for paths that were seen later.
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
	case len(known) >= b.limits.PerPair:
		old = oldest(slices.Values(known))
	case s.paths >= b.limits.PerAS:
		old = oldest(s.all)
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

func oldest(paths func(func(*path) bool)) (out *path) {
	for p := range paths {
		if out == nil || p.seen.Before(out.seen) {
			out = p
		}
	}
	return out
}

// drop forgets a path. The source stays, also when it is empty.
func (b *Base) drop(s *source, p *path) {
	dst := p.dst()
	left := slices.DeleteFunc(s.to[dst], func(q *path) bool { return p == q })
	if s.to[dst] = left; len(left) == 0 {
		delete(s.to, dst)
	}
	s.paths--
	b.paths--
}

// level makes room: every AS may keep as many paths as the others, and those with more lose their oldest. A few are dropped
// in advance, so that it is not to be done again at the next report.
func (b *Base) level() {
	room := b.limits.Paths - b.limits.Paths/64
	counts := make([]int, 0, len(b.sources))
	for _, s := range b.sources {
		counts = append(counts, s.paths)
	}
	slices.Sort(counts)
	share := 0
	for i, n := range counts { // those with few leave room for the others
		if share = room / (len(counts) - i); n > share {
			break
		}
		room -= n
	}
	for _, s := range b.sources {
		if s.paths <= share {
			continue
		}
		all := slices.SortedFunc(s.all, func(p, q *path) int { return p.seen.Compare(q.seen) })
		for _, p := range all[:len(all)-share] {
			b.drop(s, p)
		}
	}
}

// Refresh forgets what is too old and works the figures of links out anew. The owner calls it every few seconds. With a full
// memory it takes a good part of a second, for a small part of which it holds the others up.
func (b *Base) Refresh(now time.Time) {
	var reported []told
	b.mu.Lock()
	for ia, s := range b.sources {
		for _, p := range slices.Collect(s.all) { // drop changes what all walks over
			if p.forget(now.Add(-b.limits.Forget)); len(p.votes) == 0 {
				b.drop(s, p)
				b.dirty = true
			}
		}
		if s.paths == 0 {
			delete(b.sources, ia)
		}
	}
	for ia, at := range b.met {
		if now.Sub(at) > b.limits.Forget {
			delete(b.met, ia)
		}
	}
	dirty := b.dirty
	if b.dirty = false; dirty {
		for ia, s := range b.sources {
			for p := range s.all {
				if rtt := p.rtt(now, b.limits.HalfLife); rtt > 0 {
					reported = append(reported, told{ia, rtt, p.interfaces})
				}
			}
		}
	}
	b.mu.Unlock()
	if dirty {
		b.graph.Store(newGraph(reported))
	}
}

// Known is how much a base knows.
type Known struct {
	Pairs int `json:"pairs"` // of ASes, in the direction of the reports
	Paths int `json:"paths"`
	Links int `json:"links"`
}

// Known counts.
func (b *Base) Known() Known {
	b.mu.RLock()
	defer b.mu.RUnlock()
	k := Known{Paths: b.paths, Links: b.graph.Load().links}
	for _, s := range b.sources {
		k.Pairs += len(s.to)
	}
	return k
}
