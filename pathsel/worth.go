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
	// firstWeakProbe is the time until the first probe: about as long as a burst of cross traffic.
	firstWeakProbe = 10 * time.Second
	// enough is the number of slots after which a path may be called weak. Every path has a second
	// or two without a byte.
	enough = 4
)

// worth parks paths that waste traffic or carry almost nothing.
func (a *adaptation) worth(p *peerView) {
	t := a.m.peer(p.id).Trial
	sum := a.carried(p)
	for _, i := range a.where(p, Active) {
		rate := a.current(i)
		if rate.Slots < enough || t != nil && t.Key == a.cand(i).Key || len(a.where(p, Active, Probing)) < 2 {
			continue
		}
		if in := a.inVain(i); in > wasteShare {
			a.do(i, Park, fmt.Sprintf("%.0f%% of its traffic is wasted", in*100))
			a.standBy(i, Waste, firstWeakProbe)
		} else if rate.Rate+2*rate.Err < weakShare*sum {
			a.do(i, Park, fmt.Sprintf("%v is less than %.0f%% of this peer's %s", rate, weakShare*100, mbit(sum)))
			a.standBy(i, Weak, firstWeakProbe)
		}
	}
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
