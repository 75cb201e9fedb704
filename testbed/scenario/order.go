package scenario

import (
	"cmp"
	"maps"
	"slices"

	"braid/pathsel"
)

// handshakeRank tells how well handshakes predicted bandwidth. It is the rank correlation
// (Spearman) between the order of paths by handshake, shortest first, and by bytes per second of
// use, most first: 1 is a perfect prediction, -1 the opposite. Of several leechers it is the mean;
// ok is false if none had two paths to compare.
func (r *Record) handshakeRank() (rho float64, ok bool) {
	n := 0
	for _, l := range r.Leechers {
		if v, ok := l.handshakeRank(); ok {
			rho += v
			n++
		}
	}
	return rho / float64(max(1, n)), n > 0
}

func (l *Leecher) handshakeRank() (rho float64, ok bool) {
	used := l.used()
	var quick, rate []float64
	for _, f := range slices.Sorted(maps.Keys(used)) {
		var handshake, bytes float64
		for _, p := range l.Paths {
			if p.Key.Path == f {
				handshake, bytes = cmp.Or(handshake, p.Handshake), bytes+p.Read.before(l.End)
			}
		}
		if handshake > 0 && used[f] > 0 {
			quick, rate = append(quick, -handshake), append(rate, bytes/used[f])
		}
	}
	return pathsel.Spearman(quick, rate)
}

// used returns how long each path could bring payload, in seconds: while it was selected or tried.
func (l *Leecher) used() map[pathsel.Fingerprint]float64 {
	used := map[pathsel.Fingerprint]float64{}
	for _, p := range l.Paths {
		stays, _ := l.Stays(p, l.End)
		for _, s := range stays {
			if s.What == InUse || s.What == Probed {
				used[p.Key.Path] += s.To - s.From
			}
		}
	}
	delete(used, "") // not a path on SCION
	return used
}
