package pathsel

import (
	"fmt"
	"time"
)

const (
	// clearly is how much more a closed path must have shown than the weakest open one to take its
	// place. Less, and noise swaps them for ever; more, and the set stays that far from the best.
	clearly = 1.2
	// measured is how many slots a newcomer is given before it is compared.
	measured = 3
	// patience is how long a newcomer may take to show them; a choked one must not hold up the others.
	patience = 15 * time.Second
	// newcomers is the part of the places, at least one, that may be unmeasured at a time: while they
	// are, their places do not carry what they could.
	newcomers = 4
	// lookAround is the time between two verifications of what is believed, each of which costs two
	// changes: together they stay below one a minute.
	lookAround = 150 * time.Second
	// firstReturn is how long a path stays out at least when a closed one took its place on the strength of
	// an old figure.
	firstReturn = 30 * time.Second
)

// rotate lets more paths than places take turns: the weakest place goes to a path that was never tried; when
// all were tried, to one that had clearly more; and rarely to the one that was out for longest.
func (a *adaptation) rotate(p *peerView) {
	pm := a.m.peer(p.id)
	if p.paths <= a.v.MaxPaths || a.places(p) > 0 || pm.Trial != nil || a.changing(p) {
		return
	}
	next, why, penalty := a.firstChoice(p, false), "", time.Duration(0)
	if next < 0 && a.bestRotated(p) < 0 {
		return
	}
	if out := least(a.where(p, Parked), func(i int) float64 { return a.known(i).Rate }); out >= 0 {
		a.do(out, Close, fmt.Sprintf("parked (%s); others want its place", a.mem(out).Why))
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
			of = append(of, i) // had its chance
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
		// Its figure may be out of date: if it cannot repeat it, the two must not swap for ever.
		next, why, penalty = better, fmt.Sprintf("had %v: ", a.known(better)), firstReturn
	case a.v.Now.Before(a.m.Quiet):
		return
	default:
		next = a.longestOut(p)
		why = "not tried for the longest time: "
		if !pm.Explored {
			pm.Explored, next = true, -1 // the round of first tries has just ended
		} else if next >= 0 {
			pm.Displaced = a.cand(weakest).Key.Path
		}
		a.quiet()
	}
	if next < 0 {
		return
	}
	a.do(weakest, Close, fmt.Sprintf("weakest of %d places with %v; %s takes its place", a.v.MaxPaths, a.current(weakest), a.cand(next).Key.Path.Short()))
	a.standBy(weakest, Rotated, penalty)
	a.do(next, Open, why+a.announced(p, next))
	a.mem(next).Why = Used
}

// better draws among the closed paths that had clearly more than that rate, in proportion to what they had. If all
// clients took the best, all would go where few were when they looked.
func (a *adaptation) better(p *peerView, rate float64) int {
	pm := a.m.peer(p.id)
	lent := a.find(Key{Peer: p.id, Path: pm.Displaced})
	pm.Displaced = ""
	if lent >= 0 && a.mayOpen(lent) && a.known(lent).Rate > clearly*rate {
		return lent // its place was only lent
	}
	var of []int
	for _, i := range p.members {
		m := a.mem(i)
		if m.Why == Rotated && a.cand(i).Key.Conn == 0 && !a.v.Now.Before(m.Next) && a.mayOpen(i) && a.known(i).Rate > clearly*rate {
			of = append(of, i)
		}
	}
	return a.draw(of, int(a.v.Now.Unix()), func(i int) float64 { return a.known(i).Rate })
}

// quiet puts off the next change that only verifies, for all peers. Clients draw different times.
func (a *adaptation) quiet() {
	a.m.Round++
	a.m.Quiet = a.v.Now.Add(jitter(lookAround, a.v.Seed, Key{}, a.m.Round))
}

// longestOut is the closed path that stands by and whose turn comes next; -1 if none is due.
func (a *adaptation) longestOut(p *peerView) int {
	var of []int
	for _, i := range p.members {
		if m := a.mem(i); a.cand(i).Key.Conn == 0 && m.Why != Used && !a.v.Now.Before(m.Next) && a.mayOpen(i) {
			of = append(of, i)
		}
	}
	return least(of, func(i int) float64 { return float64(a.mem(i).Tried.UnixMilli()) })
}
