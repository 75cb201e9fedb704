package pathsel

import (
	"fmt"
	"slices"
)

// Without names what a selector is not to know or do, to find out what it is worth.
type Without struct {
	// Handshake, Bandwidth: how long handshakes took, and what bandwidth paths announce.
	Handshake, Bandwidth bool
	// Disjointness: which paths share links.
	Disjointness bool
	// Exploration: trying what is not needed at the moment. Paths are used as they are found, and left when they fail.
	Exploration bool
}

// withoutNames are what ParseWithout takes.
var withoutNames = []string{"handshake", "bandwidth", "disjointness", "exploration"}

// ParseWithout reads names.
func ParseWithout(names []string) (w Without, err error) {
	for _, n := range names {
		if !slices.Contains(withoutNames, n) {
			return w, fmt.Errorf("%q: want handshake, bandwidth, disjointness or exploration", n)
		}
	}
	has := func(n string) bool { return slices.Contains(names, n) }
	return Without{has("handshake"), has("bandwidth"), has("disjointness"), has("exploration")}, nil
}

// blinded is a selector that sees less.
type blinded struct {
	Selector
	without Without
}

func (b blinded) Decide(v View) Plan { return b.Selector.Decide(b.without.blind(v)) }

// blind takes out of a view what is not to be known.
func (w Without) blind(v View) View {
	v.Candidates = slices.Clone(v.Candidates)
	for i := range v.Candidates {
		c := &v.Candidates[i]
		if w.Handshake {
			c.Handshake = 0
		}
		if w.Bandwidth {
			c.Path.Bandwidth = 0
		}
		if w.Disjointness {
			c.Path.Interfaces = nil
		}
	}
	return v
}
