package pathsel

import "time"

// calm is how long a path must work before its earlier failures are forgotten. Shorter, and a path
// that flaps every few seconds is used again each time; longer, and two unrelated failures count as
// one.
const calm = time.Minute

// broken returns why an open connection must not be used, or "" if nothing is wrong. A revocation
// counts only if it is newer than the connection, because a successful handshake is better
// evidence, and only if no packets arrive, because nothing proves that a router's message is true.
func broken(c Candidate) string {
	switch {
	case !c.State.Open() || c.State == Opening && !c.Silent:
		return ""
	case c.Quiet && !c.RevokedAt.IsZero() && !c.RevokedAt.Before(c.Since):
		return "a link of the path was revoked or reported down"
	case c.Silent:
		return "silent: answers are overdue and no packets arrive"
	}
	return ""
}

// fail drops broken connections at once. If no other path carries pieces, the best parked one
// returns.
func (a *adaptation) fail(p *peerView) {
	for _, i := range p.members {
		m, c := a.mem(i), a.cand(i)
		if m.Up && c.State == Failed {
			if a.v.Now.Sub(m.Broke) > calm {
				m.Breaks = 0
			}
			m.Breaks, m.Broke = m.Breaks+1, a.v.Now
			// Whatever broke the path may have changed it, so forget its measurements' verdict.
			m.Why, m.Next, m.Backoff = Used, time.Time{}, 0
		}
		m.Up = c.State.Open() && c.State != Opening
	}
	for _, i := range p.members {
		if why := broken(*a.cand(i)); why != "" {
			a.do(i, Fail, "%s", why)
		}
	}
	if len(a.where(p, Active, Probing)) == 0 {
		if i := most(a.where(p, Parked), func(i int) float64 { return a.known(i).Rate }); i >= 0 {
			a.use(i, "no other path carries pieces from this peer")
		}
	}
}

// mayOpen reports whether the candidate may be opened now.
func (a *adaptation) mayOpen(i int) bool {
	c, m := a.cand(i), a.mem(i)
	switch {
	case a.state[i].Open() || a.decided[i]:
		return false
	case a.v.Now.Before(c.RetryAt):
		return false
	case !c.Path.Expiry.IsZero() && !a.v.Now.Before(c.Path.Expiry):
		return false // expired: wait for the next lookup
	}
	// The client's retry delay starts again after each successful handshake. If the path keeps
	// breaking soon after it was opened, the delay here goes on growing.
	return m.Breaks < 2 || !a.v.Now.Before(m.Broke.Add(RetryDelay(m.Breaks)))
}
