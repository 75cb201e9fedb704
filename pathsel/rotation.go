package pathsel

import (
	"fmt"
	"time"
)

const (
	// clearly is how much faster a closed path must have been than the weakest open one to replace
	// it. Smaller, and noise swaps them forever; larger, and the set stays that far from the best.
	clearly = 1.2
	// measured is the number of slots that a new path gets before it is compared.
	measured = 3
	// patience is how long a new path may take to fill these slots. A choked one must not delay the
	// others.
	patience = 15 * time.Second
	// Of each newcomers places, one may have an unmeasured path (and always at least one place),
	// since an unmeasured path may carry little.
	newcomers = 4
	// lookAround is the time between two changes that only verify earlier measurements. Each costs
	// two decisions; together they stay below one a minute.
	lookAround = 150 * time.Second
	// firstReturn is the shortest time for which a path stays closed after it was replaced because
	// of an old measurement.
	firstReturn = 30 * time.Second
)

// rotate lets the paths take turns if there are more paths than places. The weakest place goes to a
// path that was never tried. If all were tried, it goes to a path that was clearly faster, and
// rarely to the path that has been closed for longest.
func (a *adaptation) rotate(p *peerView) {
	if len(p.members) <= a.v.MaxPaths || a.places(p) > 0 || p.Group != nil || a.changing(p) {
		return
	}
	next, why, penalty := a.firstChoice(p, false), "", time.Duration(0)
	verifies := next < 0 && a.bestRotated(p) < 0
	if verifies && (a.v.Now.Before(a.m.Quiet) || a.longestOut(p) < 0) {
		return
	}
	if out := least(a.where(p, Parked), func(i int) float64 { return a.known(i).Rate }); out >= 0 {
		a.do(out, Close, "parked (%s), and another path needs its place", a.mem(out).Why)
		if verifies {
			a.quiet()
		}
		return // the next view fills the place
	}

	fresh := len(a.where(p, Opening))
	var of []int
	for _, i := range a.where(p, Active) {
		switch c := a.cand(i); {
		case a.current(i).Slots >= measured:
			of = append(of, i)
		case a.v.Now.Sub(c.Since) < patience:
			fresh++
		default:
			of = append(of, i) // it had enough time
		}
	}
	weakest := least(of, func(i int) float64 { return a.current(i).Rate })
	if weakest < 0 || fresh >= max(1, a.v.MaxPaths/newcomers) {
		return
	}
	better := -1
	if next < 0 {
		if fresh > 0 {
			return
		}
		better = a.better(p, a.current(weakest).Rate)
	}
	switch {
	case next >= 0:
	case better >= 0:
		// The figure may be out of date. The penalty keeps the two paths from swapping forever.
		next, penalty = better, firstReturn
		why = fmt.Sprintf("measured %v earlier: ", a.known(better))
	case a.v.Now.Before(a.m.Quiet):
		return
	default:
		next = a.longestOut(p)
		why = "closed for the longest time: "
		if !p.Explored {
			p.Explored, next = true, -1 // the round of first tries has just ended
		} else if next >= 0 {
			p.Displaced = a.cand(weakest).Key.Path
		}
		a.quiet()
	}
	if next < 0 {
		return
	}
	a.do(weakest, Close, "weakest of %d places with %v; %s replaces it",
		a.v.MaxPaths, a.current(weakest), a.cand(next).Key.Path.Short())
	a.standBy(weakest, Rotated, penalty)
	a.do(next, Open, "%s%s", why, a.announced(p, next))
	a.mem(next).Why = Used
}

// better draws a closed path that was clearly faster than rate, with a chance in proportion to its
// own rate. If all clients took the fastest, they would all crowd onto the same path.
func (a *adaptation) better(p *peerView, rate float64) int {
	lent := p.Displaced
	p.Displaced = ""
	var of []int
	for _, i := range p.members {
		if !a.mayOpen(i) || a.known(i).Rate <= clearly*rate {
			continue
		}
		if m := a.mem(i); lent != "" && lent == a.cand(i).Key.Path {
			return i // its place was only lent
		} else if m.Why == Rotated && !a.v.Now.Before(m.Next) {
			of = append(of, i)
		}
	}
	return a.draw(of, int(a.v.Now.Unix()), func(i int) float64 { return a.known(i).Rate })
}

// quiet delays the next change that only verifies measurements, for all peers. Clients draw
// different times.
func (a *adaptation) quiet() {
	a.m.Round++
	a.m.Quiet = a.v.Now.Add(jitter(lookAround, a.v.Seed, Key{}, a.m.Round))
}

// longestOut returns the closed path that has been unused for longest and is due; -1 if there is
// none.
func (a *adaptation) longestOut(p *peerView) int {
	of := p.those(func(i int) bool {
		m := a.mem(i)
		return m.Why != Used && !a.v.Now.Before(m.Next) && a.mayOpen(i)
	})
	return least(of, func(i int) float64 { return float64(a.mem(i).Tried.UnixMilli()) })
}
