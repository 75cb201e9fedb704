package knowledge

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"braid/pathsel"
	"braid/tracker/wire"
)

// Hints names for each AS up to most paths to it from src, best first. Weak ones are named too: what is not named is unknown,
// and for somebody to find out.
//
// The order is drawn: those with equal figures come in any order, one with twice the figure of another stands
// before it 16 times in 17. If all were told the same order, all would go to the same path, and from there to the next.
func (b *Base) Hints(now time.Time, src pathsel.IA, to []pathsel.IA, most int, random *rand.Rand) pathsel.Hints {
	out := pathsel.Hints{}
	for _, dst := range to {
		if _, done := out[dst]; done || dst == src || len(out) == wire.MaxHintASes {
			continue
		}
		if paths := drawn(b.candidates(now, src, dst), most, random); len(paths) > 0 {
			out[dst] = paths
		}
	}
	return out
}

// candidate is a path that may be named, and how much it promises.
type candidate struct {
	path  pathsel.Fingerprint
	worth float64
}

// candidates are by the best that is known of the pair; see the package comment.
func (b *Base) candidates(now time.Time, src, dst pathsel.IA) []candidate {
	var rated, timed []candidate
	b.mu.RLock()
	for _, p := range b.between(src, dst) {
		if e := p.estimate(now, b.limits.HalfLife); e.rate > 0 {
			rated = append(rated, candidate{p.fingerprint, e.rate})
		} else {
			timed = append(timed, candidate{p.fingerprint, e.promise()})
		}
	}
	if len(rated)+len(timed) == 0 {
		for _, p := range b.between(dst, src) {
			// Rates are those of the other direction.
			if e := p.estimate(now, b.limits.HalfLife); e.rtt > 0 {
				timed = append(timed, candidate{p.back, e.promise()})
			}
		}
	}
	b.mu.RUnlock()
	switch {
	case len(rated) > 0:
		return rated
	case len(timed) > 0:
		return timed
	}
	if ifs := b.graph.Load().way(src, dst); len(ifs) > 0 {
		return []candidate{{pathsel.FingerprintOf(ifs), 1}}
	}
	return nil
}

// between are the paths that were reported from one AS to another.
func (b *Base) between(src, dst pathsel.IA) []*path {
	if s := b.sources[src]; s != nil {
		return s.to[dst]
	}
	return nil
}

// drawn draws without putting back, with a chance in proportion to the fourth power of the worth.
func drawn(of []candidate, most int, random *rand.Rand) []pathsel.Fingerprint {
	best := 0.0
	for _, c := range of {
		best = max(best, c.worth)
	}
	// By name first: where they come from has no order, and the same chance must give the same.
	slices.SortFunc(of, func(a, b candidate) int { return cmp.Compare(a.path, b.path) })
	for i := range of {
		// The first of exponential waiting times falls to each in proportion to its weight.
		of[i].worth = random.ExpFloat64() / max(math.Pow(of[i].worth/best, 4), 1e-12)
	}
	slices.SortFunc(of, func(a, b candidate) int { return cmp.Compare(a.worth, b.worth) })
	var out []pathsel.Fingerprint
	for _, c := range of[:min(len(of), most)] {
		out = append(out, c.path)
	}
	return out
}

// Distance is the round trip between two ASes, by the best that is known of them; 0 within one AS.
func (b *Base) Distance(now time.Time, src, dst pathsel.IA) (rtt time.Duration, known bool) {
	if src == dst {
		return 0, true
	}
	shortest := math.Inf(1)
	b.mu.RLock()
	for _, way := range [][]*path{b.between(src, dst), b.between(dst, src)} {
		for _, p := range way {
			if rtt := p.estimate(now, b.limits.HalfLife).rtt; rtt > 0 {
				shortest = min(shortest, rtt)
			}
		}
		if !math.IsInf(shortest, 1) {
			break
		}
	}
	b.mu.RUnlock()
	if math.IsInf(shortest, 1) {
		if shortest, known = b.graph.Load().distance(src, dst); !known {
			return 0, false
		}
	}
	return time.Duration(shortest * float64(time.Second)), true
}

// Choose picks up to n of the peers, of which more should be given, for one in that AS. Those on IP come in the order in which
// they are given, and take half of the places while there are enough on SCION. Of these the nearest come first if asked for,
// and an AS gets at most half of the places that go to the nearest: otherwise who lies about distances would
// be all that others hear of. The slice that is given stays as it is.
func Choose(peers []wire.Peer, n int, order wire.Order, distance func(pathsel.IA) (time.Duration, bool), random *rand.Rand) []wire.Peer {
	var ip, scion []wire.Peer
	for _, p := range peers {
		if p.Addr.IsSCION() {
			scion = append(scion, p)
		} else {
			ip = append(ip, p)
		}
	}
	places := min(len(scion), max(n-len(ip), (n+1)/2))
	near := 0
	switch order {
	case wire.Nearest:
		near = places
	case wire.Mixed:
		near = (places + 1) / 2
	}
	out := nearest(scion, near, distance, random)
	rest := make([]wire.Peer, 0, len(scion))
	for _, p := range scion {
		if !slices.Contains(out, p) {
			rest = append(rest, p)
		}
	}
	random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	out = append(out, rest[:places-len(out)]...)
	return append(out, ip[:min(len(ip), n-len(out))]...)
}

// nearest picks n peers by distance; of those that are equally far, and of those of which it is not known, any.
func nearest(peers []wire.Peer, n int, distance func(pathsel.IA) (time.Duration, bool), random *rand.Rand) []wire.Peer {
	type ranked struct {
		peer wire.Peer
		far  time.Duration
	}
	far := map[pathsel.IA]time.Duration{}
	all := make([]ranked, len(peers))
	for i, p := range peers {
		d, done := far[p.Addr.IA]
		if !done {
			known := false
			if d, known = distance(p.Addr.IA); !known {
				d = math.MaxInt64
			}
			far[p.Addr.IA] = d
		}
		all[i] = ranked{p, d}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.far, b.far) })
	perAS := max(1, n/2)
	taken := map[pathsel.IA]int{}
	var out, spare []wire.Peer
	for _, r := range all {
		if taken[r.peer.Addr.IA]++; taken[r.peer.Addr.IA] > perAS {
			spare = append(spare, r.peer)
			continue
		}
		out = append(out, r.peer)
	}
	return append(out, spare...)[:min(n, len(all))]
}
