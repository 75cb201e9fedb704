package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"braid/testbed"
)

// turn is a variant in the order of runs.
type turn struct {
	Scenario // as it is in the variant
	variant  Variant
	network  testbed.Options
	key      string // of the network, see networkFor
}

// turns returns the order of the variants, which is the same in every round: the scenario's order,
// but with variants on the same network one after another, because starting a network takes
// seconds.
func (s Scenario) turns() ([]turn, error) {
	var turns []turn
	first := map[string]int{} // of each network
	for i, v := range s.Variants {
		x, err := s.in(v)
		if err != nil {
			return nil, fmt.Errorf("variant %s: %w", v.Name, err)
		}
		opts, key, err := networkFor(x)
		if err != nil {
			return nil, fmt.Errorf("variant %s: %w", v.Name, err)
		}
		if _, known := first[key]; !known {
			first[key] = i
		}
		turns = append(turns, turn{x, v, opts, key})
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(first[a.key], first[b.key]) })
	return turns, nil
}

// ByNetwork puts scenarios that start on the same network next to each other.
func ByNetwork(scenarios []Scenario) ([]Scenario, error) {
	keys := map[string]string{}
	for _, s := range scenarios {
		turns, err := s.turns()
		if err != nil {
			return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
		}
		keys[s.Name] = turns[0].key
	}
	byKey := func(a, b Scenario) int { return cmp.Compare(keys[a.Name], keys[b.Name]) }
	return slices.SortedStableFunc(slices.Values(scenarios), byKey), nil
}

// The time of a run beyond its transfer, measured on two processors: replacing a network of 2 ASes
// took 4.5 s, one of 8 ASes 9 s.
const (
	startSCION = 3 * time.Second
	startAS    = 800 * time.Millisecond // each
	startIP    = 500 * time.Millisecond // links only
	aroundRun  = 300 * time.Millisecond // the peers' start and end
)

// Estimate returns about how long the scenario takes, with so many runs of each variant (0: as it
// says).
func (s Scenario) Estimate(runs int) time.Duration {
	runs = cmp.Or(runs, s.Runs)
	turns, err := s.turns()
	if err != nil { // it would not run either
		return time.Duration(runs*len(s.Variants)) * s.Takes.D()
	}
	var whole time.Duration
	last := ""
	for range runs {
		for _, t := range turns {
			if t.key != last {
				whole += t.start()
			}
			last = t.key
			whole += s.Takes.D() + aroundRun
		}
	}
	return whole
}

// start estimates how long the turn's network takes to start.
func (t turn) start() time.Duration {
	if t.network.LinksOnly {
		return startIP
	}
	return startSCION + time.Duration(len(t.topology.ASes))*startAS
}
