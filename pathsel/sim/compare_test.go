package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/pathsel"
)

// rival names the scenario in which a rival shares the bottleneck. It measures the rival's rate.
const rival = "shared, with a rival"

// TestCompareSelectors prints each selector's mean rate in each scenario as a part of the links'
// capacity (go test -v -run Compare).
func TestCompareSelectors(t *testing.T) {
	t.Parallel()
	selectors := []string{"first", "all", "slots", "adaptive"}
	const length = 4 * time.Minute
	outage := func(how Condition, from, to time.Duration, which ...int) func([]Link) {
		return func(l []Link) {
			for _, i := range which {
				c := how
				if !how.Down && !how.Silent {
					c = l[i].Condition
					c.Cross = how.Cross * c.Rate
				}
				during(&l[i], from, to, c)
			}
		}
	}
	type scenario struct {
		name   string
		places int
		make   func() ([]Link, []pathsel.Path)
		change func([]Link)
		limit  float64 // Mbit/s, mean over the run
	}
	paths := func(rateDelay ...float64) func() ([]Link, []pathsel.Path) {
		return func() ([]Link, []pathsel.Path) { return direct(rateDelay...) }
	}
	sharing := func() ([]Link, []pathsel.Path) { return sharedBottleneck(30, 15) }
	lost := func(seconds float64) float64 { return 20 * seconds / length.Seconds() }
	scenarios := []scenario{
		{"equal", 8, paths(20, 10, 20, 10), nil, 40},
		{"unequal", 8, paths(30, 15, 15, 45), nil, 45},
		{"10:1", 8, paths(30, 5, 3, 50), nil, 33},
		{"shared bottleneck", 8, sharing, nil, 45},
		{rival, 8, sharing, nil, 45},
		{"one congested 10 s", 8, paths(20, 10, 20, 10), outage(Condition{Cross: 0.95}, 60*time.Second, 70*time.Second, 0), 40 - lost(9.5)},
		{"both congested 10 s", 8, paths(20, 10, 20, 10), outage(Condition{Cross: 0.8}, 60*time.Second, 70*time.Second, 0, 1), 40 - lost(16)},
		{"cut 15 s", 8, paths(20, 10, 20, 10), outage(Condition{Down: true}, 60*time.Second, 75*time.Second, 0), 40 - lost(15)},
		{"black hole 15 s", 8, paths(20, 10, 20, 10), outage(Condition{Silent: true}, 60*time.Second, 75*time.Second, 0), 40 - lost(15)},
		{"all down 30 s", 8, paths(20, 10, 20, 10), outage(Condition{Down: true}, 60*time.Second, 90*time.Second, 0, 1), 40 - lost(60)},
		{"ten paths, four places", 4, paths(4, 5, 12, 10, 7, 15, 25, 60, 3, 5, 16, 20, 9, 10, 2, 2, 30, 40, 6, 8), nil, 83},
	}
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-24s", "part of the limit")
	for _, s := range selectors {
		fmt.Fprintf(&table, "%10s", s)
	}
	for _, sc := range scenarios {
		fmt.Fprintf(&table, "\n%-24s", sc.name)
		var got []float64
		for _, selector := range selectors {
			links, paths := sc.make()
			if sc.change != nil {
				sc.change(links)
			}
			clients := []Client{one(selector, paths, sc.places)}
			if sc.name == rival {
				clients = append(clients, one("first", paths[2:3], 1))
			}
			out := Run(Scenario{Links: links, Clients: clients, Duration: length, Seed: 1})
			part := out[0].Rate(0, length) / limit(sc.limit)
			if sc.name == rival {
				part = out[1].Rate(0, length) / limit(15)
			}
			got = append(got, part)
			fmt.Fprintf(&table, "%10.3f", part)
		}
		if best := slices.Max(got); got[3] < 0.95*best && sc.name != rival {
			t.Errorf("%s: adaptive has %.3f, another %.3f", sc.name, got[3], best)
		}
	}
	t.Log(table.String() + "\n(\"" + rival + "\": the rival's part of its fair share)")
}

// No path is unused forever: the longest time without requests is bounded.
func TestEveryPathIsTriedAgain(t *testing.T) {
	t.Parallel()
	const length = 2 * time.Hour
	shared := func() ([]Link, []pathsel.Path) {
		last := NewLink(ia(2), ia(9), 1, 20, 5*ms)
		links, paths := []Link{last}, []pathsel.Path(nil)
		for i := range 6 {
			l := NewLink(ia(1), ia(2), uint64(10+i), 100, time.Duration(5+3*i)*ms)
			links, paths = append(links, l), append(paths, PathOver(l, last))
		}
		return links, paths
	}
	many := func() ([]Link, []pathsel.Path) { return direct(9, 5, 8, 10, 7, 15, 6, 20, 5, 5, 4, 20, 3, 10) }
	weak := func() ([]Link, []pathsel.Path) { return direct(50, 5, 0.3, 10, 0.2, 10) }
	for _, tt := range []struct {
		name   string
		make   func() ([]Link, []pathsel.Path)
		places int
	}{{"six behind one bottleneck", shared, 8}, {"seven, three places", many, 3}, {"two next to useless", weak, 8}, {"six behind one bottleneck, three places", shared, 3}} {
		t.Run(tt.name, func(t *testing.T) {
			links, paths := tt.make()
			r := play("adaptive", links, paths, tt.places, length)
			// The path's own backoff, then one turn of each other path in every lookAround, a
			// quarter more for jitter, and a minute for the trials.
			bound := (10*time.Minute+time.Duration(len(paths))*150*time.Second)*5/4 + time.Minute
			carries, since := map[pathsel.Fingerprint]bool{}, map[pathsel.Fingerprint]time.Duration{}
			longest := time.Duration(0)
			for _, e := range r.Events {
				switch e.Action {
				case pathsel.Open, pathsel.Probe, pathsel.Return:
					if !carries[e.Key.Path] {
						longest = max(longest, e.At-since[e.Key.Path])
					}
					carries[e.Key.Path] = true
				default:
					carries[e.Key.Path], since[e.Key.Path] = false, e.At
				}
			}
			for _, p := range paths {
				if !carries[p.Fingerprint] {
					longest = max(longest, length-since[p.Fingerprint])
				}
			}
			atMost(t, "longest time without a try, minutes", longest.Minutes(), bound.Minutes())
			atMost(t, "needless changes a minute, after the first five", needless(r, 5*time.Minute, length), 1)
			if t.Failed() {
				story(t, r)
			}
		})
	}
}

// The same scenario gives the same result, and its recorded views replay.
func TestRunsRepeat(t *testing.T) {
	t.Parallel()
	links, paths := sharedBottleneck(30, 15)
	during(&links[4], 60*time.Second, 65*time.Second, Condition{Silent: true})
	c := one("adaptive", paths, 3)
	selector := &recorder{Selector: c.Selector}
	sc := Scenario{Links: links, Clients: []Client{c}, Duration: 3 * time.Minute, Seed: 5}
	a := Run(sc)[0]
	sc.Clients[0].Selector = selector
	b := Run(sc)[0]
	if !slices.Equal(a.PerSecond, b.PerSecond) || !slices.Equal(a.Events, b.Events) {
		t.Error("two runs of one scenario differ")
	}
	var decisions []pathsel.Decision
	decide := pathsel.Replay(c.Selector)
	for _, v := range selector.views {
		decisions = append(decisions, decide(v).Decisions...)
	}
	if len(decisions) != len(a.Events) {
		t.Fatalf("%d decisions, replayed %d", len(a.Events), len(decisions))
	}
	for i, e := range a.Events {
		if e.Decision != decisions[i] {
			t.Fatalf("decision %d: %+v, replayed %+v", i, e.Decision, decisions[i])
		}
	}
	other, err := pathsel.New("slots")
	if err != nil {
		t.Fatal(err)
	}
	decide = pathsel.Replay(other)
	for _, v := range selector.views {
		decide(v)
	}
}
