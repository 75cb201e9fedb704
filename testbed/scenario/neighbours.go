package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"math"
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

// chooseNeighbours connects each leecher to degree earlier peers, or to all of them if there are
// fewer. So every peer is connected to the first seed, directly or through others.
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
		delay := delays(s.topology, p.AS)
		far := func(x Peer) time.Duration {
			if d, ok := delay[x.AS]; ok {
				return d
			}
			return math.MaxInt64
		}
		slices.SortStableFunc(earlier, func(a, b Peer) int { return cmp.Compare(far(a), far(b)) })
		rest := earlier[min(near, len(earlier)):]
		rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		p.From = nil
		for _, x := range earlier[:min(degree, len(earlier))] {
			p.From = append(p.From, x.Name)
		}
	}
	return nil
}

// delays returns the least propagation delay from an AS to each AS that it reaches, over any links
// (Bellman-Ford).
func delays(t testbed.Topology, from pathsel.IA) map[pathsel.IA]time.Duration {
	least := map[pathsel.IA]time.Duration{from: 0}
	for better := true; better; {
		better = false
		for _, l := range t.Links {
			a, b := l.A.Interface.IA, l.B.Interface.IA
			for _, x := range [][2]pathsel.IA{{a, b}, {b, a}} {
				near, ok := least[x[0]]
				far, known := least[x[1]]
				if d := near + l.Config.Delay; ok && (!known || d < far) {
					least[x[1]], better = d, true
				}
			}
		}
	}
	return least
}
