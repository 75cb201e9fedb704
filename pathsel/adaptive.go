package pathsel

import (
	"slices"
	"time"
)

// adaptive is the default selector; the package comment lists its rules in their order.
type adaptive struct {
	still bool // explore nothing: see Without
}

func (adaptive) Name() string { return "adaptive" }

// Paths is more than the budget: rotation tries the others. With hundreds of paths a round of tries would
// take longer than most downloads.
func (adaptive) Paths(budget int) int {
	const most = 64
	return max(budget, most)
}

func (s adaptive) Decide(v View) Plan {
	a := newAdaptation(v)
	for i := range a.peers {
		a.fail(&a.peers[i])
	}
	for i := range a.peers {
		a.note(&a.peers[i])
	}
	left := a.timeLeft()
	for i := range a.peers {
		p := &a.peers[i]
		if left < endgame {
			a.finish(p, left)
			a.choose(p)
			continue
		}
		a.tail(p, left)
		a.judge(p)
		a.worth(p)
		if s.still {
			a.m.peer(p.id).Started = true
			a.choose(p)
			continue
		}
		a.choose(p)
		a.start(p, left)
		a.rotate(p)
		if left > noExperiments {
			a.experiment(p)
		}
	}
	a.remember()
	return Plan{Decisions: a.ordered(), Memory: Memory{value: a.m}, Waiting: waiting(v)}
}

// adaptation is one call of Decide under way.
type adaptation struct {
	v     View
	m     adaptiveMemory
	peers []peerView
	// state is what each candidate's state will be once the decisions so far are carried out.
	state     []State
	decisions []Decision
	decided   map[Key]bool
	// added counts the connections beyond the view that are to be opened, for each peer.
	added map[PeerID]int
	index map[Key]int
	rates []*Estimate
}

// peerView is one peer's part of the view.
type peerView struct {
	id      PeerID
	members []int // indices of its candidates
	paths   int   // how many of them are first connections
}

func newAdaptation(v View) *adaptation {
	a := &adaptation{v: v, m: recall[adaptiveMemory](v.Memory).clone(), state: make([]State, len(v.Candidates)), decided: map[Key]bool{}, added: map[PeerID]int{}, index: make(map[Key]int, len(v.Candidates)), rates: make([]*Estimate, len(v.Candidates))}
	a.m.forget(v)
	index := map[PeerID]int{}
	for i, c := range v.Candidates {
		a.index[c.Key] = i
		a.state[i] = c.State
		at, found := index[c.Key.Peer]
		if !found {
			at = len(a.peers)
			index[c.Key.Peer] = at
			a.peers = append(a.peers, peerView{id: c.Key.Peer})
			a.m.peer(c.Key.Peer)
		}
		a.m.path(c.Key) // all of them now, so that no later call moves another's memory
		a.peers[at].members = append(a.peers[at].members, i)
		if c.Key.Conn == 0 {
			a.peers[at].paths++
		}
	}
	return a
}

func (a *adaptation) do(i int, action Action, reason string) {
	key := a.v.Candidates[i].Key
	if a.decided[key] {
		return // the first rule that speaks wins; another may speak at the next view
	}
	a.decided[key] = true
	a.decisions = append(a.decisions, Decision{key, action, reason})
	a.state[i] = map[Action]State{Open: Opening, Close: Idle, Park: Parked, Probe: Probing, Return: Active, Fail: Failed}[action]
	if action == Open || action == Probe || action == Return {
		a.m.path(key).Tried = a.v.Now
	}
}

// ordered puts what frees a place before what takes one.
func (a *adaptation) ordered() []Decision {
	slices.SortStableFunc(a.decisions, func(x, y Decision) int { return compareBool(x.Action == Open, y.Action == Open) })
	return a.decisions
}

func (a *adaptation) cand(i int) *Candidate { return &a.v.Candidates[i] }
func (a *adaptation) mem(i int) *PathMemory { return a.m.path(a.v.Candidates[i].Key) }
func (a *adaptation) known(i int) Estimate  { return EstimateOf(a.cand(i).Slots, time.Time{}, window) }
func (a *adaptation) current(i int) Estimate {
	return EstimateOf(a.cand(i).Slots, a.cand(i).Since, window)
}
func (a *adaptation) carries(i int) bool { return a.state[i].Carries() }

// find is the index of that key; -1 if it is not in the view.
func (a *adaptation) find(k Key) int {
	i, found := a.index[k]
	if !found {
		return -1
	}
	return i
}

// where lists the peer's members in one of those states, in the order of the view.
func (a *adaptation) where(p *peerView, states ...State) []int {
	var out []int
	for _, i := range p.members {
		if slices.Contains(states, a.state[i]) {
			out = append(out, i)
		}
	}
	return out
}

// places is how many more connections the budget allows this peer.
func (a *adaptation) places(p *peerView) int {
	n := a.v.MaxPaths - a.added[p.id]
	for _, i := range p.members {
		if a.state[i].Open() {
			n--
		}
	}
	return n
}

// carried is the peer's current rate as far as it is known, in bytes per second.
func (a *adaptation) carried(p *peerView) (sum float64) {
	for _, i := range p.members {
		if a.carries(i) {
			sum += a.current(i).Rate
		}
	}
	return sum
}

// changing tells whether an earlier rule has spoken for this peer already.
func (a *adaptation) changing(p *peerView) bool {
	for _, i := range p.members {
		if a.decided[a.cand(i).Key] {
			return true
		}
	}
	return false
}

// least and most pick a member by a figure; -1 of none.
func least(of []int, figure func(int) float64) int {
	best := -1
	for _, i := range of {
		if best < 0 || figure(i) < figure(best) {
			best = i
		}
	}
	return best
}

func most(of []int, figure func(int) float64) int {
	return least(of, func(i int) float64 { return -figure(i) })
}

// note keeps track of when the set of connections that carry pieces last changed.
func (a *adaptation) note(p *peerView) {
	var keys []Key
	for _, i := range p.members {
		if a.carries(i) {
			keys = append(keys, a.cand(i).Key)
		}
	}
	if pm := a.m.peer(p.id); pm.Settled.IsZero() || !slices.Equal(keys, pm.Carrying) {
		pm.Carrying, pm.Settled = keys, a.v.Now
	}
}

// remember brings the totals up to date.
func (a *adaptation) remember() {
	a.m.TotalBytes = 0
	for i := range a.v.Candidates {
		a.m.TotalBytes += a.cand(i).BytesRead
	}
}

// standBy notes why a path stands by and when it is next looked at.
func (a *adaptation) standBy(i int, why Why, first time.Duration) {
	m := a.mem(i)
	if m.Why == Used && a.v.Now.Sub(m.Tried) > lasted || m.Why != Used && m.Why != why {
		m.Backoff = 0
	}
	m.Why = why
	m.Next = a.v.Now.Add(a.backoff(m, first, m.Backoff))
	if first > 0 {
		m.Backoff++
	}
}

// backoff doubles with every look that changed nothing. Without growth a path that never gets better costs
// a probe every few seconds for ever; without a limit it would stay out for hours after it got better.
func (a *adaptation) backoff(m *PathMemory, first time.Duration, looks int) time.Duration {
	return jitter(min(first<<min(looks, 10), longestBackoff), a.v.Seed, m.Key, looks)
}

const (
	// window is how many slots a rate is taken from: fewer are noise, more answer too late.
	window = 6
	// longestBackoff bounds the time between two looks at a path.
	longestBackoff = 10 * time.Minute
	// lasted is how long a path must have been of use for its earlier backoff to be forgotten.
	lasted = 2 * time.Minute
)

// sharesLink tells whether two paths have a link in common, by the interface pairs at its ends. Two
// connections on the same path share all of it.
func sharesLink(p, q *Path) bool {
	if p.Fingerprint == q.Fingerprint {
		return true
	}
	for i := 0; i+1 < len(p.Interfaces); i += 2 {
		for j := 0; j+1 < len(q.Interfaces); j += 2 {
			if p.Interfaces[i] == q.Interfaces[j] && p.Interfaces[i+1] == q.Interfaces[j+1] {
				return true
			}
		}
	}
	return false
}

// sharers lists the carrying connections, to this peer and to others, that share a link with candidate i, without
// itself.
func (a *adaptation) sharers(i int) []int {
	var out []int
	for j := range a.v.Candidates {
		if j != i && a.carries(j) && sharesLink(&a.cand(i).Path, &a.cand(j).Path) {
			out = append(out, j)
		}
	}
	return out
}
