package pathsel

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Group is an experiment with all of a peer's paths that share links with connections in use. The
// group is probed together, and the connections in use, the rest, are watched. If the rest loses
// what the group gains, they fill the same bottleneck. Then the group adds nothing but more shares
// of a link that others use too.
//
// The group is probed together because the answer takes about ten seconds, in which a link that
// others use is taken from them. One path after the other would take minutes.
type Group struct {
	Keys   []Key     `json:"keys"`
	Rest   []Key     `json:"rest"`
	Before Estimate  `json:"before"` // the rate of the rest
	Began  time.Time `json:"began"`
}

const (
	// sharing is the part of the group's rate that the rest must have lost. Alone on their
	// bottleneck, the rest loses all of it; beside one foreign flow, half. Higher, and such a flow
	// is squeezed; lower, and noise parks good paths.
	sharing = 1.0 / 3
	// crowdedBelow is the part of its announced rate below which a path is shared with others:
	// packet headers and the controller's probes take less than the rest.
	crowdedBelow = 0.7
	// crowdedLoss is the part of its rate that the rest must have lost, with crowdedCertain
	// standard errors, on such a path. Others have lost as much, of which nobody tells us.
	crowdedLoss, crowdedCertain = 0.15, 1.5
	// certain is how many standard errors below sharing a group must be if it was found to add
	// nothing before. Fewer, and the noise of long queues brings it back.
	certain = 3
	// groupSlots is the least number of slots that are measured before the question and during it.
	// More would be more exact, but others lose their share for as long as the question takes.
	// againSlots is that number for a group that was found to add nothing before: a wrong answer
	// would last.
	groupSlots, againSlots = 3, 18
	// groupPatience ends the wait for these slots. Then the paths are used without an answer. Where
	// connections to many peers come and go on one link, there might never be one.
	groupPatience = 25 * time.Second
	// firstAgain is the time until the group is probed again.
	firstAgain = 30 * time.Second
	// dropped is the part of its former rate below which the rest no longer carries the group's
	// share, so that the group is probed at once. A foreign flow leaves the rest half.
	dropped = 0.5
)

// group begins or ends the experiment with paths that share links. Until its first answer, only
// disjoint paths are opened.
func (a *adaptation) group(p *peerView, left time.Duration) {
	if p.Group != nil {
		a.judgeGroup(p)
		return
	}
	for _, i := range a.where(p, Probing) {
		if a.inGroup(i) {
			a.use(i, "no verdict on the paths that share links")
		}
	}
	a.stepIn(p)
	if left > tailBegins && !a.changing(p) && len(a.where(p, Opening, Probing)) == 0 {
		a.probeGroup(p, left)
	}
}

// inGroup reports whether a probe of the path is part of a group's.
func (a *adaptation) inGroup(i int) bool { return a.mem(i).Why == Used || a.mem(i).Why == Shared }

// use makes a parked or probing path active.
func (a *adaptation) use(i int, reason string, args ...any) {
	a.do(i, Return, reason, args...)
	a.mem(i).Why = Used
}

// stepIn returns the best path of a group once no connection uses its links any more.
func (a *adaptation) stepIn(p *peerView) {
	for {
		of := slices.DeleteFunc(a.where(p, Parked), func(i int) bool {
			rest, _ := a.sharers([]int{i})
			return a.mem(i).Why != Shared || len(rest) > 0 || broken(*a.cand(i)) != ""
		})
		i := most(of, func(i int) float64 { return a.known(i).Rate })
		if i < 0 || a.decided[i] {
			return
		}
		a.use(i, "no other connection uses its links now")
	}
}

// sharers lists the connections, to any peer, that carry pieces and share a link with one of these
// candidates, and when the set of connections on these links last changed.
func (a *adaptation) sharers(of []int) (rest []int, settled time.Time) {
	links := a.linksOf(of)
	for j := range a.v.Candidates {
		c := a.cand(j)
		newer := c.State != Opening && c.Since.After(settled)
		if !newer && !a.carries(j) || slices.Contains(of, j) || !a.crosses(j, links) {
			continue // the cheapest test comes first: there may be thousands of candidates
		}
		if newer {
			settled = c.Since
		}
		if a.carries(j) {
			rest = append(rest, j)
		}
	}
	return rest, settled
}

func (a *adaptation) probeGroup(p *peerView, left time.Duration) {
	var of []int
	due := false
	for _, i := range p.members {
		switch m := a.mem(i); {
		case a.state[i] == Parked && m.Why == Shared:
			due = due || left > noProbes && (!a.v.Now.Before(m.Next) || a.restDropped(i))
			of = append(of, i)
		case !p.Started && m.Why == Used && a.mayOpen(i):
			due = true
			of = append(of, i)
		}
	}
	rest, settled := a.sharers(of)
	if len(rest) == 0 || !p.Started && a.places(p) <= 0 {
		p.Started = p.Started || len(a.where(p, Active)) > 0 // nothing to find out
		return
	}
	p.Started = p.Started || slices.ContainsFunc(a.where(p, Active), func(i int) bool {
		return a.v.Now.Sub(a.cand(i).Since) > groupPatience
	})
	if !due || a.probed(of) {
		return
	}
	before := a.joint(rest, settled.Add(a.grace(rest)), maxSlots) // a sawing window needs many
	if before.Slots < groupSlots {
		return
	}
	p.Group = &Group{Before: before, Began: a.v.Now}
	for _, i := range of {
		if a.state[i] != Parked && a.places(p) <= 0 {
			continue
		}
		a.do(i, Probe, "does it add to the %v of %s on the same links? %s",
			before, count(len(rest), "connection"), a.announced(p, i))
		p.Group.Keys = append(p.Group.Keys, a.cand(i).Key)
	}
	for _, j := range rest {
		p.Group.Rest = append(p.Group.Rest, a.cand(j).Key)
	}
}

// probed reports whether a group of any peer is being probed on a link of these candidates. Two
// experiments on one link could not be told apart.
func (a *adaptation) probed(of []int) bool {
	links := a.linksOf(of)
	return slices.ContainsFunc(a.peers, func(p peerView) bool {
		return p.Group != nil && slices.ContainsFunc(p.members, func(j int) bool {
			return slices.Contains(p.Group.Keys, a.cand(j).Key) && a.crosses(j, links)
		})
	})
}

// restDropped reports whether the connections that carried the path's share no longer do.
func (a *adaptation) restDropped(i int) bool {
	m, since := a.mem(i), a.cand(i).Since
	if a.v.Now.Sub(since) < firstAgain {
		return false // other flows are still taking what the group has left
	}
	rest, settled := a.sharers([]int{i})
	if settled.After(since) {
		since = settled
	}
	now := a.joint(rest, since.Add(a.grace(rest)), window)
	return now.Slots >= window && now.Rate+2*now.Err < dropped*m.Level
}

// joint estimates the total rate of these connections in the last n slots.
func (a *adaptation) joint(of []int, since time.Time, n int) Estimate {
	members := make([][]Slot, len(of))
	for k, i := range of {
		members[k] = a.cand(i).Slots
	}
	return Joint(members, since, n)
}

// grace returns the longest grace of these connections.
func (a *adaptation) grace(of []int) (longest time.Duration) {
	for _, i := range of {
		longest = max(longest, Grace(a.cand(i).RTT))
	}
	return longest
}

func (a *adaptation) judgeGroup(p *peerView) {
	g := p.Group
	waited := a.v.Now.Sub(g.Began) > groupPatience
	var added, rest []int
	since := g.Began
	for i := range a.v.Candidates {
		c := a.cand(i)
		switch {
		case slices.Contains(g.Rest, c.Key) && a.carries(i) && !c.Since.After(g.Began):
			rest = append(rest, i)
		case !slices.Contains(g.Keys, c.Key):
		case a.carries(i):
			added = append(added, i)
			if c.Since.After(since) {
				since = c.Since
			}
		case a.state[i] == Opening && !waited:
			return
		}
	}
	since = since.Add(a.grace(slices.Concat(added, rest)))
	own, after := a.joint(added, since, maxSlots), a.joint(rest, since, maxSlots)
	measured := min(own.Slots, after.Slots)
	broke := len(added) == 0 || len(rest) < len(g.Rest) // nothing can be compared then
	share, err := 0.0, math.Inf(1)
	if !broke && measured >= groupSlots && own.Rate > 0 {
		share = (g.Before.Rate - after.Rate) / own.Rate
		err = math.Hypot(after.Err, g.Before.Err) / own.Rate
	}
	nothing := share >= sharing && share >= err
	lost := share * own.Rate
	theirs := lost >= crowdedLoss*g.Before.Rate && share >= crowdedCertain*err &&
		a.crowded(rest, g.Before.Rate)
	shared := nothing || theirs
	need := groupSlots
	if !shared && p.Started {
		need = againSlots
	}
	if !broke && !waited && measured < need {
		return
	}
	p.Started, p.Group = true, nil
	adds, percent := "it adds", max(0, share)*100
	if len(added) > 1 {
		adds = fmt.Sprintf("%d paths that share links add", len(added))
	}
	for _, i := range added {
		switch again := a.mem(i).Why == Shared; {
		case math.IsInf(err, 1):
			a.use(i, "no verdict on the paths that share links")
			continue
		case !shared && (!again || share+certain*err < sharing):
			a.use(i, "%s %v, of which others lost %.0f%%", adds, own, percent)
			continue
		case theirs && !nothing:
			a.do(i, Park, "a link is shared with others, and the connections there had %v, then %v",
				g.Before, after)
		default:
			a.do(i, Park, "adds nothing: of the %v of %s %.0f%% was taken "+
				"from others on the same links", own, count(len(added), "path"), percent)
		}
		a.standBy(i, Shared, firstAgain)
		a.mem(i).Level = g.Before.Rate
	}
}

// crowded reports whether connections with that rate together, in bytes per second, have so much
// less than their paths announce that others must be on their links. Where nothing is announced,
// there may be others.
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
