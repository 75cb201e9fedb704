package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"braid/pathsel"
	"braid/testbed"
)

// Which peers a leecher downloads from, in a swarm where peers know only some others.
const (
	Nearest = "nearest" // those with the least delay
	Random  = "random"  // any, by the scenario's seed
	Mixed   = "mixed"   // half of each
)

// chooseNeighbours connects each leecher to degree earlier peers, or to all of them if there are fewer. So
// every peer is connected to the first seed, directly or through others.
func (s *Scenario) chooseNeighbours(how string, degree int) error {
	if how != Nearest && how != Random && how != Mixed {
		return fmt.Errorf("neighbours %q: want nearest, random or mixed", how)
	}
	if degree < 1 || degree > maxPeers {
		return errors.New("neighbours: say how many with degree")
	}
	rng := rand.New(rand.NewPCG(s.Seed, 1))
	for i := range s.Peers {
		p := &s.Peers[i]
		if p.Role != Leech {
			continue
		}
		earlier := slices.Clone(s.Peers[:i])
		near := 0
		switch how {
		case Nearest:
			near = degree
		case Mixed:
			near = (degree + 1) / 2
		}
		slices.SortStableFunc(earlier, func(a, b Peer) int {
			return cmp.Compare(shortestDelay(s.topology, a.AS, p.AS), shortestDelay(s.topology, b.AS, p.AS))
		})
		far := earlier[min(near, len(earlier)):]
		rng.Shuffle(len(far), func(i, j int) { far[i], far[j] = far[j], far[i] })
		p.From = nil
		for _, x := range earlier[:min(degree, len(earlier))] {
			p.From = append(p.From, x.Name)
		}
	}
	return nil
}

// unreachable is longer than any way.
const unreachable = time.Hour

// shortestDelay returns the least propagation delay from one AS to another over any links (Dijkstra).
func shortestDelay(t testbed.Topology, src, dst pathsel.IA) time.Duration {
	delay := map[pathsel.IA]time.Duration{src: 0}
	done := map[pathsel.IA]bool{}
	for {
		var at pathsel.IA
		best := unreachable
		for ia, d := range delay {
			if !done[ia] && (d < best || d == best && ia < at) {
				at, best = ia, d
			}
		}
		if best == unreachable || at == dst {
			return best
		}
		done[at] = true
		for _, l := range t.Links {
			to := l.B.Interface.IA
			if to == at {
				to = l.A.Interface.IA
			} else if l.A.Interface.IA != at {
				continue
			}
			if d, ok := delay[to]; !ok || best+l.Config.Delay < d {
				delay[to] = best + l.Config.Delay
			}
		}
	}
}
