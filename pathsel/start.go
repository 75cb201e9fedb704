package pathsel

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Group is the first question about paths that have links in common: all that share links with those that opened first
// were probed together, and the first ones, the rest, are watched. Asked of each by itself the question takes minutes, in
// which a link that others use is taken from them.
type Group struct {
	Keys   []Key     `json:"keys"`
	Rest   []Key     `json:"rest"`
	Before Estimate  `json:"before"`
	Began  time.Time `json:"began"`
}

const (
	// startSlots are measured before and after: the answer is coarse, and trials make it finer.
	startSlots = 3
	// crowdedBelow is the part of its announced rate below which a path is shared with others: headers and the saw
	// teeth of one connection take less than the rest of it.
	crowdedBelow = 0.7
	// crowdedLoss is what the first connections must have lost of their rate, with crowdedCertain standard errors,
	// when somebody else is on their link too. He has lost as much, which nobody tells us.
	crowdedLoss, crowdedCertain = 0.15, 1.5
	// startPatience ends the wait for them: then the paths are opened, or stay, without a verdict.
	startPatience = 12 * time.Second
)

// begin with paths that have no link in common; then ask whether the others add anything. While that is open only
// disjoint paths are a first choice.
func (a *adaptation) start(p *peerView, left time.Duration) {
	pm := a.m.peer(p.id)
	switch {
	case pm.Started:
	case pm.Group != nil:
		a.judgeGroup(p)
	case left >= tailBegins && !a.changing(p) && len(a.where(p, Opening)) == 0:
		a.openGroup(p)
	}
}

func (a *adaptation) openGroup(p *peerView) {
	pm := a.m.peer(p.id)
	var keys []Key
	var of, rest []int
	for _, i := range p.members {
		if a.cand(i).Key.Conn == 0 && a.mem(i).Why == Used && a.mayOpen(i) {
			of = append(of, i)
		}
	}
	for _, i := range of {
		if a.busy(p, i) {
			return
		}
		rest = append(rest, a.sharers(i)...)
	}
	slices.Sort(rest)
	rest = slices.Compact(rest)
	if len(of) == 0 || len(rest) == 0 || a.places(p) <= 0 {
		pm.Started = len(a.where(p, Active)) > 0 // nothing is to be asked
		return
	}
	before := a.joint(rest, a.baseline(rest[0], rest[1:]))
	if before.Slots < startSlots {
		if a.v.Now.Sub(pm.Settled) > startPatience {
			pm.Started = true
		}
		return
	}
	for a.places(p) > 0 && len(of) > 0 {
		i := a.next(p, of, true)
		of = slices.DeleteFunc(of, func(j int) bool { return i == j })
		a.do(i, Probe, "do those that share links add to "+before.String()+"? "+a.announced(p, i))
		keys = append(keys, a.cand(i).Key)
	}
	pm.Group = &Group{Keys: keys, Before: before, Began: a.v.Now}
	for _, j := range rest {
		pm.Group.Rest = append(pm.Group.Rest, a.cand(j).Key)
	}
}

func (a *adaptation) judgeGroup(p *peerView) {
	pm := a.m.peer(p.id)
	g := pm.Group
	waited := a.v.Now.Sub(g.Began) > startPatience
	var added, rest []int
	since := g.Began
	for _, k := range g.Keys {
		switch i := a.find(k); {
		case i < 0:
		case a.carries(i):
			added = append(added, i)
			if s := a.cand(i).Since; s.After(since) {
				since = s
			}
		case a.state[i] == Opening && !waited:
			return
		}
	}
	for _, k := range g.Rest {
		if i := a.find(k); i >= 0 && a.carries(i) {
			rest = append(rest, i)
		}
	}
	grace := time.Duration(0)
	for _, i := range slices.Concat(added, rest) {
		grace = max(grace, Grace(a.cand(i).RTT))
	}
	own, after := a.joint(added, since.Add(grace)), a.joint(rest, since.Add(grace))
	changed := len(added) == 0 || len(rest) < len(g.Rest) // or one of them broke: then nothing can be compared
	if !changed && min(own.Slots, after.Slots) < startSlots && !waited {
		return
	}
	pm.Started, pm.Group = true, nil
	stay := func(reason string) {
		for _, i := range added {
			if a.state[i] == Probing {
				a.do(i, Return, reason)
			}
		}
	}
	if changed || min(own.Slots, after.Slots) < startSlots || own.Rate == 0 {
		stay("no verdict on those that share links")
		return
	}
	lost, err := g.Before.Rate-after.Rate, math.Hypot(after.Err, g.Before.Err)
	share := lost / own.Rate
	nothing := share >= sharing && lost >= err
	rivals := a.crowded(rest, g.Before.Rate) && lost >= crowdedLoss*g.Before.Rate && lost >= crowdedCertain*err
	if !nothing && !rivals { // which of them are worth it is found out one by one
		stay(fmt.Sprintf("%d paths that share links add %v, of which %.0f%% was taken from the first", len(added), own, share*100))
		return
	}
	reason := fmt.Sprintf("adds nothing: of the %v of %d paths %.0f%% was taken from others on the same links", own, len(added), share*100)
	if !nothing {
		reason = fmt.Sprintf("not ours to take: a link is shared with others than us, and the first had %v, then %v", g.Before, after)
	}
	for _, i := range added {
		a.putBack(p, i, Shared, reason)
		a.mem(i).Level = g.Before.Rate
	}
}

// crowded tells whether connections with that rate together have less than their paths announce, so that others must be
// on their links. Where nothing is announced they may be.
func (a *adaptation) crowded(of []int, rate float64) bool {
	var announced float64 // bits per second
	for _, i := range of {
		if a.cand(i).Path.Bandwidth == 0 {
			return true
		}
		announced += float64(a.cand(i).Path.Bandwidth)
	}
	return rate*8 < crowdedBelow*announced
}
