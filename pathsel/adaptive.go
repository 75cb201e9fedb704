package pathsel

import (
	"fmt"
	"iter"
	"slices"
	"time"
)

// adaptive is the default selector. The package comment lists its rules in order.
type adaptive struct {
	still bool // no exploration: see Without
}

func (adaptive) Name() string { return "adaptive" }

// Paths returns more than the budget, because rotation tries the other paths. It is limited: with
// hundreds of paths, one round of tries would take longer than most downloads.
func (adaptive) Paths(budget int) int {
	const most = 64
	return max(budget, most)
}

func (s adaptive) Decide(v View) Plan {
	a := newAdaptation(v)
	for i := range a.peers {
		a.fail(&a.peers[i])
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
		a.park(p)
		if s.still {
			p.Started = true
			a.choose(p)
			continue
		}
		a.choose(p)
		a.group(p, left)
		a.rotate(p)
		if left > noProbes {
			a.probe(p)
		}
	}
	return Plan{Decisions: a.ordered(), Memory: Memory{value: a.memory()}, Waiting: waiting(v)}
}

// adaptation is the working state of one call of Decide.
type adaptation struct {
	v     View
	m     adaptiveMemory // the next one, without the peers
	peers []peerView
	// state is the state of each candidate once the decisions so far are carried out.
	state     []State
	decisions []Decision
	decided   []bool // about each candidate
}

// peerView is the part of the view that belongs to one peer.
type peerView struct {
	PeerMemory
	members []int // indices of its candidates, one for each path
}

func newAdaptation(v View) *adaptation {
	before, n := recall[adaptiveMemory](v.Memory), len(v.Candidates)
	paths, peers := make(map[Key]PathMemory, n), map[PeerID]PeerMemory{}
	for _, m := range before.Paths {
		paths[m.Key] = m
	}
	for _, m := range before.Peers {
		peers[m.Peer] = m
	}
	a := &adaptation{v: v, m: before, state: make([]State, n), decided: make([]bool, n)}
	a.m.Paths = make([]PathMemory, n)
	index := map[PeerID]int{}
	for i, c := range v.Candidates {
		a.state[i] = c.State
		a.m.Paths[i] = paths[c.Key]
		a.m.Paths[i].Key = c.Key
		at, found := index[c.Key.Peer]
		if !found {
			at = len(a.peers)
			index[c.Key.Peer] = at
			a.peers = append(a.peers, peerView{PeerMemory: peers[c.Key.Peer]})
			a.peers[at].Peer = c.Key.Peer
		}
		a.peers[at].members = append(a.peers[at].members, i)
	}
	return a
}

// memory is what is remembered for the next view.
func (a *adaptation) memory() adaptiveMemory {
	m := a.m
	m.Peers = nil
	for _, p := range a.peers {
		m.Peers = append(m.Peers, p.PeerMemory)
	}
	return m
}

// do adds a decision, unless an earlier rule has already decided about the candidate in this view.
func (a *adaptation) do(i int, action Action, reason string, args ...any) {
	if a.decided[i] {
		return
	}
	a.decided[i] = true
	d := Decision{a.cand(i).Key, action, fmt.Sprintf(reason, args...)}
	a.decisions = append(a.decisions, d)
	a.state[i] = stateAfter[action]
	if action == Open || action == Probe || action == Return {
		a.mem(i).Tried = a.v.Now
	}
}

// stateAfter is the state into which an action leads.
var stateAfter = map[Action]State{
	Open: Opening, Close: Idle, Park: Parked, Probe: Probing, Return: Active, Fail: Failed,
}

// ordered puts decisions that free a place before those that take one.
func (a *adaptation) ordered() []Decision {
	slices.SortStableFunc(a.decisions, func(x, y Decision) int {
		return compareBool(x.Action == Open, y.Action == Open)
	})
	return a.decisions
}

func (a *adaptation) cand(i int) *Candidate { return &a.v.Candidates[i] }
func (a *adaptation) mem(i int) *PathMemory { return &a.m.Paths[i] }
func (a *adaptation) carries(i int) bool    { return a.state[i].Carries() }

// known is the rate in the last slots, and current that of the present connection.
func (a *adaptation) known(i int) Estimate {
	return EstimateOf(a.cand(i).Slots, time.Time{}, window)
}
func (a *adaptation) current(i int) Estimate {
	return EstimateOf(a.cand(i).Slots, a.cand(i).Since, window)
}

// those lists the peer's candidates for which f is true, in the order of the view.
func (p *peerView) those(f func(i int) bool) (out []int) {
	for _, i := range p.members {
		if f(i) {
			out = append(out, i)
		}
	}
	return out
}

// where lists the peer's candidates in any of the states.
func (a *adaptation) where(p *peerView, states ...State) []int {
	return p.those(func(i int) bool { return slices.Contains(states, a.state[i]) })
}

// places returns how many more connections the budget allows for this peer.
func (a *adaptation) places(p *peerView) int {
	return a.v.MaxPaths - len(p.those(func(i int) bool { return a.state[i].Open() }))
}

// carried returns the peer's measured rate in bytes per second, summed over its connections.
func (a *adaptation) carried(p *peerView) (sum float64) {
	for _, i := range p.members {
		if a.carries(i) {
			sum += a.current(i).Rate
		}
	}
	return sum
}

// changing reports whether an earlier rule has already decided something for this peer.
func (a *adaptation) changing(p *peerView) bool {
	return slices.ContainsFunc(p.members, func(i int) bool { return a.decided[i] })
}

// least and most return the candidate with the smallest or largest figure, or -1 if there are no
// candidates.
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

// standBy records why a path is set aside, and when it is tried again.
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

// backoff returns a time that doubles with each unsuccessful try. Without growth, a path that never
// improves costs a probe every few seconds forever. Without a limit, it would stay unused for hours
// after it has improved.
func (a *adaptation) backoff(m *PathMemory, first time.Duration, looks int) time.Duration {
	return jitter(min(first<<min(looks, 10), longestBackoff), a.v.Seed, m.Key, looks)
}

const (
	// window is the number of slots from which a rate is estimated. Fewer give noise; more react
	// late.
	window = 6
	// longestBackoff limits the time between two tries of a path.
	longestBackoff = 10 * time.Minute
	// lasted is how long a path must have been used before its earlier backoff is reset.
	lasted = 2 * time.Minute
)

// link is a link between ASes, named by the interfaces at its ends in the direction of travel.
type link [2]Interface

func (p *Path) links() iter.Seq[link] {
	return func(yield func(link) bool) {
		for ends := range slices.Chunk(p.Interfaces, 2) {
			if len(ends) == 2 && !yield(link(ends)) {
				return
			}
		}
	}
}

// linksOf returns the links of these candidates' paths.
func (a *adaptation) linksOf(of []int) map[link]bool {
	links := map[link]bool{}
	for _, i := range of {
		for l := range a.cand(i).Path.links() {
			links[l] = true
		}
	}
	return links
}

// crosses reports whether a candidate's path has one of these links.
func (a *adaptation) crosses(i int, links map[link]bool) bool {
	for l := range a.cand(i).Path.links() {
		if links[l] {
			return true
		}
	}
	return false
}
