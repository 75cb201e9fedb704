package pathsel

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// choose fills free places. It prefers paths that were never tried and failed paths that are due
// for a retry, then paths that were closed to make room for others.
func (a *adaptation) choose(p *peerView) {
	for a.places(p) > 0 {
		if i := a.firstChoice(p, true); i >= 0 {
			a.do(i, Open, "%s", a.announced(p, i))
			continue
		}
		if !p.Started {
			return // until then, only disjoint paths may be opened: see group
		}
		i := a.bestRotated(p)
		if i < 0 {
			i = a.longestOut(p)
		}
		if i < 0 {
			return
		}
		a.do(i, Open, "a place is free; last measured at %v", a.known(i))
		a.mem(i).Why = Used
	}
}

// firstChoice returns the best candidate that no measurement has ruled out, by the user's
// preference first, then by hint or prospect (see next); -1 if there is none. free tells whether it
// gets a free place or replaces another path.
func (a *adaptation) firstChoice(p *peerView, free bool) int {
	of := p.those(func(i int) bool { return a.mem(i).Why == Used && a.mayOpen(i) })
	if !p.Started {
		used := a.linksOf(a.where(p, Opening, Active))
		of = slices.DeleteFunc(of, func(i int) bool { return a.crosses(i, used) })
	}
	if len(of) > 0 {
		best := slices.MinFunc(of, a.prefer)
		of = slices.DeleteFunc(of, func(i int) bool { return a.prefer(best, i) < 0 })
	}
	if !p.Started && a.places(p) > 1 {
		of = a.inGoodSets(p, of)
	}
	return a.next(p, of, free)
}

// inGoodSets returns the paths that belong to a good set of disjoint paths. A path that shares
// links with several others can keep all of these closed until the group is probed. It is left out
// if the best set with it promises clearly less than the best set of all. Hinted paths stay.
func (a *adaptation) inGoodSets(p *peerView, of []int) []int {
	worth := make(map[int]float64, len(of))
	for _, i := range of {
		worth[i] = a.prospect(p, i)
	}
	byWorth := slices.Clone(of)
	slices.SortStableFunc(byWorth, func(i, j int) int { return cmp.Compare(worth[j], worth[i]) })
	best, ofSet, places := 0.0, make(map[int]float64, len(of)), a.places(p)
	for _, i := range of {
		ofSet[i] = worth[i]
		links, size := a.linksOf([]int{i}), 1
		for _, j := range byWorth {
			if size < places && !a.crosses(j, links) {
				maps.Copy(links, a.linksOf([]int{j}))
				ofSet[i], size = ofSet[i]+worth[j], size+1
			}
		}
		best = max(best, ofSet[i])
	}
	return slices.DeleteFunc(of, func(i int) bool {
		return clearly*ofSet[i] < best && a.cand(i).Hint == 0
	})
}

func (a *adaptation) prefer(i, j int) int {
	return a.v.Preference.Compare(a.cand(i).Path, a.cand(j).Path)
}

// draw returns a random candidate, with a chance in proportion to its weight, or -1 if there are
// none. If every client in the same situation took the best path, all would move together from path
// to path. n varies the draw. With the square of the prospect as its weight, a lone client mostly
// gets the best path, and many clients still spread.
func (a *adaptation) draw(of []int, n int, weight func(int) float64) int {
	return least(of, func(i int) float64 {
		return -math.Log(1-chance(a.v.Seed, a.cand(i).Key, n)) / max(weight(i), 1e-9)
	})
}

// bestRotated returns the fastest path among those that were closed to make room; -1 if there is
// none.
func (a *adaptation) bestRotated(p *peerView) int {
	of := p.those(func(i int) bool { return a.mem(i).Why == Rotated && a.mayOpen(i) })
	return most(of, func(i int) float64 { return a.known(i).Rate })
}

// prospect estimates the worth of an unmeasured path: its announced bandwidth, shared with the
// peer's open paths that use one of its links, and reduced for a long round trip. It only orders
// paths; measurement corrects it.
func (a *adaptation) prospect(p *peerView, i int) float64 {
	const (
		// typical is for paths that announce no bandwidth. It ranks them neither best nor worst.
		typical = 100e6 // bits per second
		// halved is the one-way latency that halves a path's prospect. Without it, a satellite link
		// would equal a terrestrial link of the same rate.
		halved = 100 * time.Millisecond
		perHop = time.Millisecond // assumed latency where none is announced
		packet = 1500             // bytes; smaller packets lower the prospect
	)
	c := a.cand(i)
	worth := float64(c.Path.Bandwidth)
	if worth == 0 {
		worth = typical
	}
	users := 1 + a.sharing(p, i)
	latency := max(c.Path.Latency, time.Duration(c.Path.Hops())*perHop)
	if c.Handshake > 0 {
		latency = max(latency, c.Handshake/4) // a handshake takes two round trips
	}
	worth /= float64(users) * (1 + latency.Seconds()/halved.Seconds())
	if c.Path.MTU > 0 && c.Path.MTU < packet {
		worth *= float64(c.Path.MTU) / packet
	}
	return worth
}

// sharing counts the peer's other open paths that use one of the path's links.
func (a *adaptation) sharing(p *peerView, i int) int {
	links := a.linksOf([]int{i})
	return len(p.those(func(j int) bool {
		return j != i && a.state[j].Open() && a.crosses(j, links)
	}))
}

// count returns "1 hop" or "2 hops".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// announced describes an unused path, as the reason for opening it.
func (a *adaptation) announced(p *peerView, i int) string {
	c := a.cand(i)
	s := count(c.Path.Hops(), "hop")
	if c.Path.Bandwidth > 0 {
		s += fmt.Sprintf(", %.0f Mbit/s announced", float64(c.Path.Bandwidth)/1e6)
	}
	if c.Path.Latency > 0 {
		s += fmt.Sprintf(", %v", c.Path.Latency)
	}
	if c.Hint > 0 {
		s += fmt.Sprintf(", hint %d", c.Hint)
	}
	if shared := a.sharing(p, i); shared > 0 {
		s += ", shares links with " + count(shared, "open path")
	} else {
		s += ", disjoint from all open paths"
	}
	switch {
	case c.Failures > 0 || c.State == Failed:
		return "retry: " + s
	case a.mem(i).Tried.IsZero():
		return "never tried: " + s
	}
	return s
}
