package pathsel

import (
	"fmt"
	"time"
)

// calm is how long a path must have lasted for its earlier breaks to be forgiven. Shorter, and a path
// that flaps every few seconds is used again each time; longer, and two unrelated cuts count as one.
const calm = time.Minute

// broken says why an open connection must not be used; "" if nothing is wrong with it. A revocation from
// before the connection was opened does not count: that it could be opened is the better evidence. Nor does one while
// packets arrive: nothing in a router's message proves that it is true.
func broken(c Candidate) string {
	switch {
	case !c.State.Open() || c.State == Opening && !c.Silent:
		return ""
	case c.Quiet && !c.RevokedAt.IsZero() && !c.RevokedAt.Before(c.Since):
		return "a link of the path was revoked or reported down"
	case c.Silent:
		return "silent: data in flight and nothing acknowledged"
	}
	return ""
}

// fail takes out at once what broke. Those that had been parked because it carried their share come back
// in its place.
func (a *adaptation) fail(p *peerView) {
	for _, i := range p.members {
		m, c := a.mem(i), a.cand(i)
		if m.Up && c.State == Failed {
			if a.v.Now.Sub(m.Broke) > calm {
				m.Breaks = 0
			}
			m.Breaks, m.Broke = m.Breaks+1, a.v.Now
			a.stepIn(p, i)
			if m.Why != Surplus {
				// What was known of it may have changed with what broke it.
				m.Why, m.Next, m.Backoff, m.Checks = Used, time.Time{}, 0, 0
			}
		}
		m.Up = c.State.Open() && c.State != Opening
	}
	for _, i := range p.members {
		if why := broken(*a.cand(i)); why != "" {
			carried := a.carries(i)
			a.do(i, Fail, why)
			if carried {
				a.stepIn(p, i)
			}
		}
	}
	if len(a.where(p, Active, Probing)) == 0 {
		if i := most(a.where(p, Parked), func(i int) float64 { return a.known(i).Rate }); i >= 0 {
			a.do(i, Return, "nothing else carries pieces for this peer")
			a.mem(i).Why = Used
		}
	}
}

// stepIn returns the best of those that were parked because others on their bottleneck, such as i, carried
// their share.
func (a *adaptation) stepIn(p *peerView, i int) {
	var mates []int
	for _, j := range a.where(p, Parked) {
		if a.mem(j).Why == Shared && broken(*a.cand(j)) == "" && sharesLink(&a.cand(i).Path, &a.cand(j).Path) {
			mates = append(mates, j)
		}
	}
	if j := most(mates, func(j int) float64 { return a.known(j).Rate }); j >= 0 {
		a.do(j, Return, fmt.Sprintf("steps in for %s, with which it shared a bottleneck", a.cand(i).Key.Path.Short()))
		a.mem(j).Why = Used
	}
}

// mayOpen tells whether an attempt is due.
func (a *adaptation) mayOpen(i int) bool {
	c, m := a.cand(i), a.mem(i)
	switch {
	case a.state[i].Open() || a.decided[c.Key]:
		return false
	case a.v.Now.Before(c.RetryAt):
		return false
	case !c.Path.Expiry.IsZero() && !a.v.Now.Before(c.Path.Expiry):
		return false // waits for the next lookup
	}
	// Opened, broken, opened: each time the retry delay begins anew in the client. Here it goes on.
	return m.Breaks < 2 || !a.v.Now.Before(m.Broke.Add(RetryDelay(m.Breaks)))
}
