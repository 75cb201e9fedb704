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

// Hints names up to most paths from src to each AS, the best first. It names bad paths too, so that
// a path without a hint is one that nobody has measured.
//
// The order is random. A path with twice the figure of another comes first 16 times in 17, and
// equal paths come in any order. With the same order for all, all peers would crowd onto the same
// path, and then together onto the next.
//
// The rate of a hint is what hosts of src have received over the path lately.
func (b *Base) Hints(now time.Time, src pathsel.IA, to []pathsel.IA, most int, random *rand.Rand) pathsel.Hints {
	out := pathsel.Hints{}
	for _, dst := range to {
		if _, done := out[dst]; done || dst == src || len(out) == wire.MaxHintASes {
			continue
		}
		if paths := draw(b.candidates(now, src, dst), most, random); len(paths) > 0 {
			out[dst] = paths
		}
	}
	return out
}

// candidate is a possible hint. Only the ratio of two worths matters.
type candidate struct {
	pathsel.Hint
	worth float64
}

// candidates use the best source of figures for the pair; see the package comment.
func (b *Base) candidates(now time.Time, src, dst pathsel.IA) []candidate {
	var rated, timed []candidate
	b.mu.RLock()
	for _, p := range b.between(src, dst) {
		if e := p.estimate(now, b.limits.halfLife); e.rate > 0 {
			h := pathsel.Hint{Path: p.fingerprint}
			if now.Sub(p.rated()) < b.limits.halfLife {
				h.Rate = e.rate
			}
			rated = append(rated, candidate{h, e.rate})
		} else {
			timed = append(timed, candidate{pathsel.Hint{Path: p.fingerprint}, e.promise()})
		}
	}
	if len(rated)+len(timed) == 0 {
		for _, p := range b.between(dst, src) {
			// Rates are left out: they belong to the other direction.
			if e := p.estimate(now, b.limits.halfLife); e.rtt > 0 {
				timed = append(timed, candidate{pathsel.Hint{Path: p.back}, e.promise()})
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
		return []candidate{{pathsel.Hint{Path: pathsel.FingerprintOf(ifs)}, 1}}
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

// draw puts the candidates into a random order, with chances in proportion to the fourth power of
// their worth.
func draw(of []candidate, most int, random *rand.Rand) []pathsel.Hint {
	best := 0.0
	for _, c := range of {
		best = max(best, c.worth)
	}
	// Sort first: the candidates come in any order, but equal random numbers must give equal
	// results.
	slices.SortFunc(of, func(a, b candidate) int { return cmp.Compare(a.Path, b.Path) })
	for i := range of {
		// Of exponential waiting times, each is the shortest with a chance in proportion to its
		// rate.
		of[i].worth = random.ExpFloat64() / max(math.Pow(of[i].worth/best, 4), 1e-12)
	}
	slices.SortFunc(of, func(a, b candidate) int { return cmp.Compare(a.worth, b.worth) })
	var out []pathsel.Hint
	for _, c := range of[:min(len(of), most)] {
		out = append(out, c.Hint)
	}
	return out
}

// Distance is the round trip between two ASes, from the best source for the pair. Within one AS it
// is 0.
func (b *Base) Distance(now time.Time, src, dst pathsel.IA) (rtt time.Duration, known bool) {
	if src == dst {
		return 0, true
	}
	shortest := math.Inf(1)
	b.mu.RLock()
	for _, way := range [][]*path{b.between(src, dst), b.between(dst, src)} {
		for _, p := range way {
			if rtt := p.rtt(now, b.limits.halfLife); rtt > 0 {
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

// DistanceFunc is the round trip to an AS, if it is known.
type DistanceFunc func(pathsel.IA) (rtt time.Duration, known bool)

// Choose picks up to n of the peers. Peers on IP keep their order, and get half of the places if
// there are enough on SCION. The order says how many of the SCION peers are the nearest ones. At
// most half of these are in one AS, so that an AS that lies about distances cannot fill an answer.
// The argument stays as it is.
func Choose(peers []wire.Peer, n int, order wire.Order, distance DistanceFunc, random *rand.Rand) []wire.Peer {
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

// nearest picks n peers by distance, and at random among equal ones. Unknown distances come last.
func nearest(peers []wire.Peer, n int, distance DistanceFunc, random *rand.Rand) []wire.Peer {
	far := map[pathsel.IA]time.Duration{}
	for _, p := range peers {
		if _, done := far[p.Addr.IA]; done {
			continue
		}
		d, known := distance(p.Addr.IA)
		if !known {
			d = math.MaxInt64
		}
		far[p.Addr.IA] = d
	}
	all := slices.Clone(peers)
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.SortStableFunc(all, func(a, b wire.Peer) int {
		return cmp.Compare(far[a.Addr.IA], far[b.Addr.IA])
	})
	perAS := max(1, n/2)
	taken := map[pathsel.IA]int{}
	var out, spare []wire.Peer
	for _, p := range all {
		if taken[p.Addr.IA]++; taken[p.Addr.IA] > perAS {
			spare = append(spare, p)
			continue
		}
		out = append(out, p)
	}
	return append(out, spare...)[:min(n, len(all))]
}
