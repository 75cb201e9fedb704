package pathsel

import (
	"maps"
	"slices"
)

// Hints are paths that a tracker recommends to try first, best first, for each destination AS. They
// come from strangers, so they only change the order of first tries and the start of a connection.
// Hints for unknown paths are ignored.
type Hints map[IA][]Hint

// Hint is one recommended path.
type Hint struct {
	Path Fingerprint
	// Rate is what others have received over the path lately in bytes per second; 0: unknown.
	Rate float64
}

// Rank returns the position of the path among the hints for its AS, from 1, or 0 if it is not
// hinted.
func (h Hints) Rank(p Path) int {
	return slices.IndexFunc(h[p.Dst], func(x Hint) bool { return x.Path == p.Fingerprint }) + 1
}

// Merge returns the hints of both maps. For an AS that is in both, the newer hints win. The maps
// stay unchanged.
func (h Hints) Merge(newer Hints) Hints {
	out := make(Hints, len(h)+len(newer))
	maps.Copy(out, h)
	maps.Copy(out, newer)
	return out
}

// next returns the candidate that should be tried next, or -1 if there are none.
//
// A free place goes to hinted paths, best first, then to a path drawn by prospect. A place from
// which another path must leave goes to a path without a hint, as long as there is one: the paths
// in use were hinted higher, or else the hints are wrong, so the other paths have more to offer. A
// false hint thus costs only the first try of each place. A hint counts until its path was tried;
// measurement is better. Trackers randomize their hints, so clients do not all do the same.
func (a *adaptation) next(p *peerView, of []int, free bool) int {
	named := func(i int) bool { return a.cand(i).Hint > 0 && a.mem(i).Tried.IsZero() }
	hinted := slices.DeleteFunc(slices.Clone(of), func(i int) bool { return !named(i) })
	if len(hinted) > 0 && (free || len(hinted) == len(of)) {
		return least(hinted, func(i int) float64 { return float64(a.cand(i).Hint) })
	}
	of = slices.DeleteFunc(slices.Clone(of), named)
	return a.draw(of, 0, func(i int) float64 { w := a.prospect(p, i); return w * w })
}
