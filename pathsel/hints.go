package pathsel

import "slices"

// Hints are paths that somebody else names as good ones to begin with, best first, by the AS that they lead to. They come
// from strangers: they may order what is tried first, and nothing more. Paths that do not exist do no harm.
type Hints map[IA][]Fingerprint

// Rank is the place of a path among those named for its AS, from 1; 0 if it is not named.
func (h Hints) Rank(p Path) int { return slices.Index(h[p.Dst], p.Fingerprint) + 1 }

// Merge adds newer hints: those for an AS replace the ones before. The maps stay as they are.
func (h Hints) Merge(newer Hints) Hints {
	out := make(Hints, len(h)+len(newer))
	for _, from := range []Hints{h, newer} {
		for ia, paths := range from {
			out[ia] = paths
		}
	}
	return out
}

// next is the candidate that is to be tried next of those given; -1 of none.
//
// Places that are free go to those that hints name, best first, then to those that are drawn by prospect. A place that a path
// has to leave goes to one that nobody names, as long as there is any: what is named and not in use yet is known to be less
// than what is, or the hints are wrong, and in both cases the others have more to show. So a lie costs the first try
// of each place. A hint counts once: what was tried is known better. Whoever gives hints has drawn already, so that not all
// who get them do the same.
func (a *adaptation) next(p *peerView, of []int, free bool) int {
	named := func(i int) bool { return a.cand(i).Hint > 0 && a.mem(i).Tried.IsZero() }
	hinted := slices.DeleteFunc(slices.Clone(of), func(i int) bool { return !named(i) })
	if len(hinted) > 0 && (free || len(hinted) == len(of)) {
		return least(hinted, func(i int) float64 { return float64(a.cand(i).Hint) })
	}
	of = slices.DeleteFunc(slices.Clone(of), named)
	return a.draw(of, 0, func(i int) float64 { w := a.prospect(p, i); return w * w })
}
