package pathsel

import (
	"fmt"
	"time"
)

const (
	// weakShare is the share of a peer's rate below which a path is parked. strongShare is what it
	// must reach to come back. With one figure for both, a path near it would come and go.
	weakShare, strongShare = 0.02, 0.03
	// wasteShare is the share of unneeded bytes, or of lost packets, from which a path does harm.
	wasteShare = 0.25
	// firstProbe is the time until the first probe: about as long as a burst of cross traffic.
	firstProbe = 10 * time.Second
	// probePatience ends a probe in which no data can flow, for example because the peer chokes.
	probePatience = 20 * time.Second
	// enough is the number of slots after which a path may be called weak. Every path has a second
	// or two without a byte.
	enough = 4
)

// park parks paths that waste traffic or carry almost nothing. Each peer keeps one path: it may
// have pieces that other peers lack.
func (a *adaptation) park(p *peerView) {
	sum := a.carried(p)
	for _, i := range a.where(p, Active) {
		if a.current(i).Slots < enough || len(a.where(p, Active, Probing)) < 2 {
			continue
		}
		if why, reason := a.useless(i, weakShare, sum); why != Used {
			a.do(i, Park, "%s", reason)
			a.standBy(i, why, firstProbe)
		}
	}
}

// probe gives parked paths requests when the next try is due.
func (a *adaptation) probe(p *peerView) {
	if p.Group != nil {
		return // it would disturb the experiment
	}
	for _, i := range a.where(p, Parked) {
		if m := a.mem(i); (m.Why == Weak || m.Why == Waste) && !a.v.Now.Before(m.Next) {
			since := a.v.Now.Sub(a.cand(i).Since).Round(time.Second)
			a.do(i, Probe, "parked (%s) since %s; what does it carry now?", m.Why, since)
		}
	}
}

// judge ends probes: a path returns if it carries enough now.
func (a *adaptation) judge(p *peerView) {
	for _, i := range a.where(p, Probing) {
		if a.inGroup(i) {
			continue
		}
		why, reason := a.mem(i).Why, "too little time in which data could flow"
		switch rate := a.current(i); {
		case rate.Slots >= enough:
			if why, reason = a.useless(i, strongShare, a.carried(p)); why == Used {
				a.use(i, "it carries %v now", rate)
				continue
			}
		case a.v.Now.Sub(a.cand(i).Since) < probePatience:
			continue
		}
		a.do(i, Park, "%s", reason)
		a.standBy(i, why, firstProbe)
	}
}

// useless tells whether a path wastes traffic, or carries less than a share of the peer's rate. It
// returns Used if neither is so.
func (a *adaptation) useless(i int, share, sum float64) (Why, string) {
	rate := a.current(i)
	if in := a.inVain(i); in > wasteShare {
		return Waste, fmt.Sprintf("%.0f%% of its traffic is wasted", in*100)
	}
	if rate.Rate+2*rate.Err < share*sum {
		return Weak, fmt.Sprintf("%v is less than %.0f%% of this peer's %s",
			rate, share*100, mbit(sum))
	}
	return Used, ""
}

// inVain returns the share of recent bytes that were not needed, or of recent packets that were
// lost, whichever is larger.
func (a *adaptation) inVain(i int) float64 {
	c := a.cand(i)
	var bytes, wasted, sent, lost uint64
	for _, s := range c.Slots[max(0, len(c.Slots)-window):] {
		if !s.Start.Before(c.Since) {
			bytes, wasted = bytes+s.Bytes, wasted+s.Wasted
			sent, lost = sent+s.Sent, lost+s.Lost
		}
	}
	const few = 100 // packets; a share of fewer is mostly chance
	var share float64
	if bytes > 0 {
		share = float64(wasted) / float64(bytes)
	}
	if sent >= few {
		share = max(share, float64(lost)/float64(sent))
	}
	return share
}
