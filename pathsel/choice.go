package pathsel

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// choose fills free places: first with paths that were never tried or that failed and are due, then with
// those that had to leave for others.
func (a *adaptation) choose(p *peerView) {
	for a.places(p) > 0 {
		if i := a.firstChoice(p, true); i >= 0 {
			a.do(i, Open, a.announced(p, i))
			continue
		}
		if !a.m.peer(p.id).Started {
			return // see start
		}
		i := a.bestRotated(p)
		if i < 0 {
			i = a.longestOut(p)
		}
		if i < 0 {
			return
		}
		a.do(i, Open, fmt.Sprintf("a place is free, and it had %v", a.known(i)))
		a.mem(i).Why = Used
	}
}

// firstChoice is one of those that no measurement speaks against and that the user prefers to the others: the best by
// hint or prospect (see next); -1 if there is none. It is for a place that is free, or that another has to leave.
func (a *adaptation) firstChoice(p *peerView, free bool) int {
	var of []int
	for _, i := range p.members {
		if a.cand(i).Key.Conn == 0 && a.mem(i).Why == Used && a.mayOpen(i) {
			of = append(of, i)
		}
	}
	if !a.m.peer(p.id).Started {
		open := a.where(p, Opening, Active)
		of = slices.DeleteFunc(of, func(i int) bool {
			return slices.ContainsFunc(open, func(j int) bool { return sharesLink(&a.cand(i).Path, &a.cand(j).Path) })
		})
	}
	if len(of) > 0 {
		best := slices.MinFunc(of, a.prefer)
		of = slices.DeleteFunc(of, func(i int) bool { return a.prefer(best, i) < 0 })
	}
	return a.next(p, of, free)
}

func (a *adaptation) prefer(i, j int) int {
	return a.v.Preference.Compare(a.cand(i).Path, a.cand(j).Path)
}

// draw picks one with a chance in proportion to its weight; -1 of none. The best of all would be the choice of
// every client in the same situation, and they would swing together from path to path. The square of the
// prospect above keeps a lone client close to the best, and many from all choosing the same.
func (a *adaptation) draw(of []int, n int, weight func(int) float64) int {
	return least(of, func(i int) float64 { return -math.Log(1-chance(a.v.Seed, a.cand(i).Key, n)) / max(weight(i), 1e-9) })
}

func (a *adaptation) bestRotated(p *peerView) int {
	var of []int
	for _, i := range p.members {
		if m := a.mem(i); a.cand(i).Key.Conn == 0 && m.Why == Rotated && a.mayOpen(i) {
			of = append(of, i)
		}
	}
	return most(of, func(i int) float64 { return a.known(i).Rate })
}

// prospect is what a path that was not measured promises: its announced bandwidth, divided among those that
// already use one of its links, less the longer its round trip takes. It only orders; measurement corrects it.
func (a *adaptation) prospect(p *peerView, i int) float64 {
	const (
		// typical is for paths that announce nothing: among announced figures they are neither best
		// nor worst.
		typical = 100e6 // bits per second
		// halved is the one-way latency that halves a path's prospect; without it a satellite link
		// would be equal to a terrestrial one of the same rate.
		halved = 100 * time.Millisecond
		perHop = time.Millisecond // of latency where none is announced
		packet = 1500             // bytes; larger packets cost less each
	)
	c := a.cand(i)
	worth := float64(c.Path.Bandwidth)
	if worth == 0 {
		worth = typical
	}
	users := 1
	for _, j := range p.members {
		if j != i && a.state[j].Open() && sharesLink(&c.Path, &a.cand(j).Path) {
			users++
		}
	}
	latency := max(c.Path.Latency, time.Duration(c.Path.Hops())*perHop)
	if c.Handshake > 0 {
		latency = max(latency, c.Handshake/4) // two round trips
	}
	worth /= float64(users) * (1 + latency.Seconds()/halved.Seconds())
	if c.Path.MTU > 0 && c.Path.MTU < packet {
		worth *= float64(c.Path.MTU) / packet
	}
	return worth
}

func (a *adaptation) announced(p *peerView, i int) string {
	c := a.cand(i)
	shared := 0
	for _, j := range p.members {
		if j != i && a.state[j].Open() && sharesLink(&c.Path, &a.cand(j).Path) {
			shared++
		}
	}
	s := fmt.Sprintf("%d hops", c.Path.Hops())
	if c.Path.Bandwidth > 0 {
		s += fmt.Sprintf(", %.0f Mbit/s announced", float64(c.Path.Bandwidth)/1e6)
	}
	if c.Path.Latency > 0 {
		s += fmt.Sprintf(", %v", c.Path.Latency)
	}
	if c.Hint > 0 {
		s += fmt.Sprintf(", hint %d", c.Hint)
	}
	if shared > 0 {
		s += fmt.Sprintf(", shares links with %d open", shared)
	} else {
		s += ", disjoint from all open"
	}
	switch {
	case c.Failures > 0 || c.State == Failed:
		return "try again: " + s
	case a.mem(i).Tried.IsZero():
		return "never tried: " + s
	}
	return s
}
