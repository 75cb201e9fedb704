package pathsel

import (
	"fmt"
	"slices"
)

// Without names what a selector must not know or do, to measure how much it contributes.
type Without struct {
	// Handshake hides handshake times, and Bandwidth hides announced bandwidths.
	Handshake, Bandwidth bool
	// Disjointness hides which paths share links.
	Disjointness bool
	// Exploration turns off tries and experiments: paths are used as they are found, until they
	// fail.
	Exploration bool
}

// ParseWithout makes a Without from names.
func ParseWithout(names []string) (w Without, err error) {
	known := map[string]*bool{
		"handshake": &w.Handshake, "bandwidth": &w.Bandwidth,
		"disjointness": &w.Disjointness, "exploration": &w.Exploration,
	}
	for _, n := range names {
		x := known[n]
		if x == nil {
			return w, fmt.Errorf("%q: want handshake, bandwidth, disjointness or exploration", n)
		}
		*x = true
	}
	return w, nil
}

// restricted is a selector that sees only a part of each view.
type restricted struct {
	Selector
	without Without
}

func (r restricted) Decide(v View) Plan { return r.Selector.Decide(r.without.hide(v)) }

// hide removes from a copy of the view what the selector must not know.
func (w Without) hide(v View) View {
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
