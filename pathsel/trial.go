package pathsel

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// A trial answers one question: do these connections share a bottleneck? One of them is taken out (or
// added), and the others that have a link in common with it are watched. If they gain (or lose) a
// good part of what it carried, they filled the same link, and it adds nothing but one more share of a
// link that others may use too. If they stay as they were, it adds what it carries. Each question about the
// sum is this one: a member of a suspected group is taken out; a parked path, or one more connection on a
// path, is added.
//
// One trial at a time on any link, and none before the set of connections has settled: two changes at
// once could not be told apart.
const (
	// sharing is the part of the subject's rate that the others must have taken over (or given up).
	// Alone on their bottleneck they take all of it; with one flow of somebody else's beside
	// two connections, half. Higher, and such a competitor is squeezed; lower, and noise parks good paths.
	sharing = 1.0 / 3
	// certain is how many standard errors the change must measure.
	certain = 2
	// certainUnqueued replaces it where no queue stands: a full bottleneck has one, and a window that saws up
	// and down because of loss looks like others that take over.
	certainUnqueued = 4
	// trialSlots is how many slots a verdict needs, clearSlots how many at most while it is unclear,
	// trialWindow how many it is taken from: a window that saws up and down every few seconds, as on a
	// lossy path, must fit in.
	trialSlots, clearSlots, trialWindow = 4, 10, 8
	// trialPatience ends a trial that gets no slots (choked, starved).
	trialPatience = 20 * time.Second
	// detectable is how many standard errors of the others' rate the subject must carry: of what is
	// less, the others' change could not be seen.
	detectable = 6

	// probeShare is the part of all bytes that probes may have carried when the next one begins.
	probeShare = 0.05
	// firstSharedProbe, examineAgain: a verdict is checked once soon, then rarely.
	firstSharedProbe = 30 * time.Second
	examineAgain     = 2 * time.Minute
	// dropped is the part of their former rate below which the others no longer carry the parked
	// one's share, so that it is probed at once. A rival that begins on their link leaves them half.
	dropped = 0.5
	// soon is the time before something abandoned is tried again.
	soon = 10 * time.Second

	// emptyQueue is the ratio of the round-trip time to the shortest one below which no queue stands at
	// the bottleneck: the connection does not fill its path. A full link of the usual buffers doubles it.
	emptyQueue = 1.25
	// mostConns bounds the connections on one path: so many flows are an attack on those who use one.
	mostConns = 4
	// overshoot is how long slow start's overshoot may take to decay on a path without a queue.
	overshoot = 15 * time.Second
	// paysOff is what one more connection must add to its path.
	paysOff = 0.1
	// firstSurplusProbe is when one more connection is tried again after it did not pay off.
	firstSurplusProbe = time.Minute
)

// judge concludes the peer's trial when it can.
func (a *adaptation) judge(p *peerView) {
	pm := a.m.peer(p.id)
	t := pm.Trial
	if t == nil {
		return
	}
	i := a.find(t.Key)
	if i < 0 || !a.state[i].Open() {
		pm.Trial = nil // it broke; its own rules care for it
		return
	}
	rest := make([]int, 0, len(t.Rest))
	for _, k := range t.Rest {
		if j := a.find(k); j >= 0 && a.carries(j) && !a.cand(j).Since.After(t.Began) {
			rest = append(rest, j)
		}
	}
	if len(rest) < len(t.Rest) || t.Remove && a.state[i] != Parked {
		a.abandon(p, i, "the others changed")
		return
	}
	if !t.Remove && a.state[i] == Opening {
		return
	}

	settled := t.Began
	if !t.Remove {
		settled = a.cand(i).Since
	}
	grace := Grace(a.cand(i).RTT)
	for _, j := range rest {
		grace = max(grace, Grace(a.cand(j).RTT))
	}
	settled = settled.Add(grace)
	own, after := t.Own, a.joint(rest, settled)
	slots := after.Slots
	if !t.Remove {
		own = EstimateOf(a.cand(i).Slots, settled, trialWindow)
		slots = own.Slots
		if len(rest) > 0 {
			slots = min(slots, after.Slots)
		}
	}
	if slots < trialSlots {
		if a.v.Now.Sub(settled) > trialPatience {
			a.abandon(p, i, "too little time in which data could flow")
		}
		return
	}
	share, err := 0.0, 0.0
	if len(rest) > 0 && own.Rate > 0 {
		share = (after.Rate - t.Before.Rate) / own.Rate
		if !t.Remove {
			share = -share
		}
		err = math.Hypot(after.Err, t.Before.Err) / own.Rate
	}
	if math.Abs(share-sharing) < err && a.v.Now.Sub(settled) < clearSlots*SlotLength {
		return // look at a few slots more
	}
	a.account(i, t)
	pm.Trial = nil
	sure := float64(certain)
	if queueEmpty(a.cand(i).Slots) {
		sure = certainUnqueued
	}
	shared := share >= sharing && share >= sure*err
	if t.Why == Shared && sure == certain {
		// It was convicted once: now it must be clear that it is not so. Otherwise noise would let it
		// out and a further trial put it back.
		shared = share+certain*err >= sharing
	}
	if t.Remove {
		a.afterRemoval(i, shared, share, err, t.Before, after)
	} else {
		a.afterAddition(p, i, t, shared, share, own, after)
	}
	if !shared && (len(rest) == 1 && share+err < sharing || t.Why == Surplus) {
		for _, j := range rest { // it is acquitted with the subject
			m := a.mem(j)
			m.Checks = max(m.Checks, 1)
			m.Next = a.v.Now.Add(a.backoff(m, examineAgain, m.Checks))
		}
	}
}

func (a *adaptation) afterRemoval(i int, shared bool, share, err float64, before, after Estimate) {
	m := a.mem(i)
	if shared {
		a.standBy(i, Shared, firstSharedProbe)
		m.Level = after.Rate
		return
	}
	a.do(i, Return, fmt.Sprintf("adds its own bandwidth: without it the others went from %v to %v (%.0f%% of its rate)", before, after, share*100))
	m.Why = Used
	if share+err >= sharing {
		m.Next = a.v.Now.Add(a.backoff(m, firstSharedProbe, m.Checks)) // not clear: ask again
	} else {
		m.Next = a.v.Now.Add(a.backoff(m, examineAgain, m.Checks))
	}
	m.Checks++
}

func (a *adaptation) afterAddition(p *peerView, i int, t *Trial, shared bool, share float64, own, after Estimate) {
	m := a.mem(i)
	refuse := ""
	switch in := a.inVain(i); {
	case shared && share < sharing:
		refuse = fmt.Sprintf("not clear that its %v adds anything: %.0f%% of it was taken from others on the same links", own, share*100)
	case shared:
		refuse = fmt.Sprintf("adds nothing: %.0f%% of its %v was taken from others on the same links", share*100, own)
	case in > wasteShare:
		refuse = fmt.Sprintf("%.0f%% of its traffic is in vain", in*100)
	case own.Rate < strongShare*a.carried(p):
		refuse = fmt.Sprintf("%v is less than %.0f%% of this peer's %s", own, strongShare*100, mbit(a.carried(p)))
	case t.Why == Surplus && own.Rate*(1-max(share, 0)) < paysOff*a.onPath(p, i):
		refuse = fmt.Sprintf("one more connection with %v does not pay off", own)
	}
	if refuse == "" {
		if a.state[i] == Probing {
			a.do(i, Return, fmt.Sprintf("adds %v", own))
		}
		if t.Why == Shared {
			// Two verdicts contradict each other: the next examination settles it. The backoff stays, so
			// that a path on the edge does not go in and out for ever.
			m.Why, m.Checks, m.Next = Used, 0, a.v.Now.Add(a.backoff(m, firstSharedProbe, 0))
			// If the bottleneck has moved, it has moved for all who were parked because of it.
			for _, j := range a.where(p, Parked) {
				if mate := a.mem(j); mate.Why == Shared && sharesLink(&a.cand(i).Path, &a.cand(j).Path) {
					mate.Next, mate.Backoff = a.v.Now, min(mate.Backoff, 1)
				}
			}
			return
		}
		m.Why, m.Backoff, m.Checks = Used, 0, 1
		m.Next = a.v.Now.Add(a.backoff(m, examineAgain, 0))
		return
	}
	why := t.Why
	if shared && why != Surplus {
		why = Shared
		m.Level = t.Before.Rate
	}
	a.putBack(p, i, why, refuse)
}

// account adds what a probe carried. One more connection on a path in use is not a probe: its bytes would
// have come over that path anyway.
func (a *adaptation) account(i int, t *Trial) {
	if !t.Remove && t.Why != Surplus {
		a.m.ProbeBytes += sub(a.cand(i).BytesRead, t.Bytes)
	}
}

// onPath is what the other connections on the path of member i carry.
func (a *adaptation) onPath(p *peerView, i int) (sum float64) {
	for _, j := range p.members {
		if j != i && a.carries(j) && a.cand(j).Key.Path == a.cand(i).Key.Path {
			sum += a.current(j).Rate
		}
	}
	return sum
}

// putBack parks what a probe found wanting, or closes it where it may not keep its place.
func (a *adaptation) putBack(p *peerView, i int, why Why, reason string) {
	if why == Surplus || why == Rotated || p.paths > a.v.MaxPaths {
		a.do(i, Close, reason)
	} else {
		a.do(i, Park, reason)
	}
	first := firstSharedProbe
	switch why {
	case Weak, Waste:
		first = firstWeakProbe
	case Surplus:
		first = firstSurplusProbe
	}
	a.standBy(i, why, first)
}

// abandon ends a trial without a verdict, with everything as it was before.
func (a *adaptation) abandon(p *peerView, i int, reason string) {
	pm := a.m.peer(p.id)
	t := pm.Trial
	pm.Trial = nil
	a.account(i, t)
	if t.Remove || len(a.where(p, Active)) == 0 {
		a.do(i, Return, "no verdict: "+reason)
		a.mem(i).Why = Used
		a.mem(i).Next = a.v.Now.Add(soon)
		return
	}
	a.putBack(p, i, t.Why, "no verdict: "+reason)
}

func (a *adaptation) joint(of []int, since time.Time) Estimate {
	members := make([][]Slot, len(of))
	for n, i := range of {
		members[n] = a.cand(i).Slots
	}
	return Joint(members, since, trialWindow)
}

// experiment begins a trial, if one is due and can be judged.
func (a *adaptation) experiment(p *peerView) {
	pm := a.m.peer(p.id)
	if pm.Trial != nil || !pm.Started || len(a.where(p, Opening, Probing)) > 0 || a.changing(p) {
		return
	}
	_ = a.probe(p) || a.examine(p) || a.widen(p)
}

// probe adds a parked path whose time has come.
func (a *adaptation) probe(p *peerView) bool {
	if float64(a.m.ProbeBytes) > probeShare*float64(a.m.TotalBytes) {
		return false
	}
	var of []int
	for _, i := range a.where(p, Parked) {
		if m := a.mem(i); m.Why != Late && (a.due(i) || m.Why == Shared && a.levelDropped(i)) {
			of = append(of, i)
		}
	}
	i := least(of, func(i int) float64 { return float64(a.mem(i).Tried.UnixMilli()) })
	if i < 0 || !a.begin(p, i, a.sharers(i), false) {
		return false
	}
	m := a.mem(i)
	reason := fmt.Sprintf("parked (%s) since %s; would it add bandwidth now?", m.Why, a.v.Now.Sub(a.cand(i).Since).Round(time.Second))
	if m.Why == Shared && !a.due(i) {
		reason = fmt.Sprintf("the others that carried its share dropped below %.0f%% of %s", dropped*100, mbit(m.Level))
	} else if m.Why == Shared {
		a.quiet()
	}
	a.do(i, Probe, reason)
	return true
}

// due tells whether the next look at a path has come. Looks that only verify a shared bottleneck also wait
// for the peer's quiet time to end, but the first.
func (a *adaptation) due(i int) bool {
	m := a.mem(i)
	if a.v.Now.Before(m.Next) {
		return false
	}
	first := m.Why == Used && m.Checks == 0 || m.Why == Shared && m.Backoff <= 1
	return first || m.Why == Weak || m.Why == Waste || !a.v.Now.Before(a.m.Quiet)
}

func (a *adaptation) levelDropped(i int) bool {
	if a.v.Now.Sub(a.mem(i).Tried) < soon || a.v.Now.Sub(a.cand(i).Since) < soon {
		return false
	}
	rest := a.sharers(i)
	now := a.joint(rest, a.v.Now.Add(-(enough+2)*SlotLength))
	return len(rest) == 0 || now.Slots >= enough && now.Rate+2*now.Err < dropped*a.mem(i).Level
}

// examine takes out a member of a suspected group: the smallest whose absence can be noticed.
func (a *adaptation) examine(p *peerView) bool {
	active := a.where(p, Active)
	if len(active) < 2 {
		return false // each peer keeps one: it may have pieces that the others lack
	}
	i := -1
	slices.SortStableFunc(active, func(i, j int) int { return cmp.Compare(a.current(j).Rate, a.current(i).Rate) })
	for _, k := range active { // the largest first: if it cannot be noticed, none can
		if !a.due(k) || a.busy(p, k) {
			continue
		}
		rest := a.sharers(k)
		if len(rest) == 0 {
			continue
		}
		own, before := a.current(k), a.joint(rest, a.baseline(k, rest))
		if own.Slots < trialSlots || before.Slots < trialSlots {
			continue
		}
		if own.Rate <= detectable*before.Err {
			break
		}
		if i < 0 || own.Rate < a.current(i).Rate {
			i = k
		}
	}
	if i < 0 {
		return false
	}
	rest := a.sharers(i)
	if !a.begin(p, i, rest, true) {
		return false
	}
	if a.mem(i).Checks > 0 {
		a.quiet()
	}
	shared := a.cand(i).Path.Shared(a.cand(rest[0]).Path)
	on := "its path"
	if len(shared) > 0 {
		on = shared[0].String()
	}
	a.do(i, Park, fmt.Sprintf("experiment: shares %s with %d others; do they take over its %v?", on, len(rest), a.current(i)))
	return true
}

// widen opens one more connection on a path that its connections do not fill.
func (a *adaptation) widen(p *peerView) bool {
	if a.places(p) <= 0 || a.v.Now.Sub(a.m.peer(p.id).Settled) < overshoot {
		return false
	}
	for _, i := range a.where(p, Active) {
		c := a.cand(i)
		next := Key{c.Key.Peer, c.Key.Path, a.conns(p, c.Key.Path)}
		if c.Key.Path == "" {
			continue // inside one AS, or where the network chooses: ordinary peers refuse a second connection
		}
		if c.Key.Conn != 0 || next.Conn >= mostConns || a.current(i).Slots < trialSlots || !queueEmpty(c.Slots) {
			continue
		}
		m := a.m.path(next)
		again := m.Backoff > 0
		if a.v.Now.Before(m.Next) || again && a.v.Now.Before(a.m.Quiet) {
			continue
		}
		rest := append(a.sharers(i), i)
		slices.Sort(rest)
		at := a.find(next)
		if at >= 0 && !a.mayOpen(at) || !a.beginKey(p, next, at, i, rest, false, Surplus) {
			continue
		}
		if again {
			a.quiet()
		}
		a.decided[next] = true
		a.added[p.id]++
		a.m.path(next).Tried = a.v.Now
		a.decisions = append(a.decisions, Decision{next, Open, fmt.Sprintf("one more connection: no queue stands at %v (round trip %v), the path is not full", a.current(i), c.RTT.Round(time.Millisecond))})
		return true
	}
	return false
}

// conns is how many connections of that path are open, as the first free index: they are closed from the
// last one down.
func (a *adaptation) conns(p *peerView, path Fingerprint) int {
	n := 0
	for n < mostConns {
		if i := a.find(Key{p.id, path, n}); i < 0 || !a.state[i].Open() {
			break
		}
		n++
	}
	return n
}

func queueEmpty(slots []Slot) bool {
	var ratio []float64
	for _, s := range slots[max(0, len(slots)-window):] {
		if s.MinRTT > 0 {
			ratio = append(ratio, float64(s.RTT)/float64(s.MinRTT))
		}
	}
	return len(ratio) >= trialSlots && median(ratio) < emptyQueue
}

// baseline is from when the rates of these connections can be compared with what comes: after the last
// change of the set and the grace after it.
func (a *adaptation) baseline(i int, rest []int) time.Time {
	grace, settled := Grace(a.cand(i).RTT), time.Time{}
	peer := a.cand(i).Key.Peer
	for n, j := range append(slices.Clone(rest), i) {
		grace = max(grace, Grace(a.cand(j).RTT))
		if id := a.cand(j).Key.Peer; n == 0 || id != peer { // members of a peer stand together
			peer = id
			if s := a.m.peer(id).Settled; s.After(settled) {
				settled = s
			}
		}
	}
	return settled.Add(grace)
}

func (a *adaptation) begin(p *peerView, i int, rest []int, remove bool) bool {
	return a.beginKey(p, a.cand(i).Key, i, i, rest, remove, a.mem(i).Why)
}

// beginKey notes a trial of that key, whose path is that of candidate like; at is its own index or -1. It
// refuses when there is nothing to compare with yet, or another trial is under way on one of the links.
func (a *adaptation) beginKey(p *peerView, key Key, at, like int, rest []int, remove bool, why Why) bool {
	if a.busy(p, like) {
		return false
	}
	t := &Trial{Key: key, Remove: remove, Why: why, Began: a.v.Now}
	since := a.baseline(like, rest)
	if len(rest) > 0 {
		if t.Before = a.joint(rest, since); t.Before.Slots < trialSlots {
			return false
		}
	}
	if remove {
		if t.Own = EstimateOf(a.cand(at).Slots, since, trialWindow); t.Own.Slots < trialSlots {
			return false
		}
	}
	for _, j := range rest {
		t.Rest = append(t.Rest, a.cand(j).Key)
	}
	if at >= 0 {
		t.Bytes = a.cand(at).BytesRead
	}
	a.m.peer(p.id).Trial = t
	return true
}

// busy tells whether another peer's trial or first question is under way on a link of candidate i.
func (a *adaptation) busy(p *peerView, i int) bool {
	for k := range a.peers {
		q := &a.peers[k]
		if q.id == p.id {
			continue
		}
		var keys []Key
		pm := a.m.peer(q.id)
		if pm.Trial != nil {
			keys = append(slices.Clone(pm.Trial.Rest), pm.Trial.Key)
		}
		if pm.Group != nil {
			keys = slices.Concat(keys, pm.Group.Rest, pm.Group.Keys)
		}
		for _, key := range keys {
			if j := a.find(key); j >= 0 && sharesLink(&a.cand(i).Path, &a.cand(j).Path) {
				return true
			}
		}
	}
	return false
}
