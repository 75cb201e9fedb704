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

// next is the candidate that is to be tried next of those given: the one with the best hint, if any has one, else one that is
// drawn by prospect; -1 of none. A hint counts once: what was tried is known better. Whoever gives hints has drawn already,
// so that not all who get them do the same.
func (a *adaptation) next(p *peerView, of []int) int {
	hinted := slices.DeleteFunc(slices.Clone(of), func(i int) bool { return a.cand(i).Hint <= 0 || !a.mem(i).Tried.IsZero() })
	if len(hinted) > 0 {
		return least(hinted, func(i int) float64 { return float64(a.cand(i).Hint) })
	}
	return a.draw(of, 0, func(i int) float64 { w := a.prospect(p, i); return w * w })
}
