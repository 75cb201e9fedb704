package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"braid/pathsel"
)

// silentAbout removes what paths announce, so that only measurement can tell them apart.
func silentAbout(paths []pathsel.Path) []pathsel.Path {
	out := make([]pathsel.Path, len(paths))
	for i, p := range paths {
		p.Bandwidth, p.Latency, p.LatencyKnown = 0, 0, false
		out[i] = p
	}
	return out
}

// bestFixed returns the rate of the best set of n paths. It simulates all such sets.
func bestFixed(links []Link, paths []pathsel.Path, n int) float64 {
	best := 0.0
	var set []pathsel.Path
	var choose func(from int)
	choose = func(from int) {
		if len(set) == n {
			r := play("all", links, set, n, 25*time.Second)
			best = max(best, r.Rate(10*time.Second, 25*time.Second))
			return
		}
		for i := from; i < len(paths); i++ {
			set = append(set, paths[i])
			choose(i + 1)
			set = set[:len(set)-1]
		}
	}
	choose(0)
	return best
}

func TestMorePathsThanPlaces(t *testing.T) {
	t.Parallel()
	disjoint, disjointPaths := direct(4, 5, 12, 10, 7, 15, 25, 60, 3, 5, 16, 20, 9, 10, 2, 2, 30, 40, 6, 8)
	// Two groups behind a shared link each, and single ones: the best set takes one of each group.
	var grouped []Link
	var groupedPaths []pathsel.Path
	for g := range 2 {
		last := NewLink(ia(2+g), ia(9), 1, 20, 5*ms)
		grouped = append(grouped, last)
		for i := range 3 {
			l := NewLink(ia(1), ia(2+g), uint64(10*(g+1)+i), 100, time.Duration(5+3*i)*ms)
			grouped = append(grouped, l)
			groupedPaths = append(groupedPaths, PathOver(l, last))
		}
	}
	for i, rate := range []float64{12, 8, 4} {
		l := NewLink(ia(1), ia(9), uint64(50+i), rate, 20*ms)
		grouped = append(grouped, l)
		groupedPaths = append(groupedPaths, PathOver(l))
	}
	for _, tt := range []struct {
		name   string
		links  []Link
		paths  []pathsel.Path
		places int
	}{
		{"10 disjoint, 4 places", disjoint, disjointPaths, 4},
		{"10 disjoint, nothing announced", disjoint, silentAbout(disjointPaths), 4},
		{"10 disjoint, 2 places", disjoint, silentAbout(disjointPaths), 2},
		{"two groups, 4 places", grouped, groupedPaths, 4},
		{"two groups, nothing announced", grouped, silentAbout(groupedPaths), 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			best := bestFixed(tt.links, tt.paths, tt.places)
			r := play("adaptive", tt.links, tt.paths, tt.places, 20*time.Minute)
			t.Logf("best fixed set %.1f Mbit/s; first %.1f; first minute %.2f, second %.2f", best/1e6,
				play("all", tt.links, tt.paths, tt.places, steady).Rate(10*time.Second, steady)/1e6,
				r.Rate(0, steady)/best, r.Rate(steady, 2*steady)/best)
			atLeast(t, "from 3 to 20 minutes, of the best fixed set", r.Rate(3*steady, 20*steady)/best, 0.95)
			atMost(t, "needless changes a minute", needless(r, 3*steady, 20*steady), 1)
			tried := map[pathsel.Fingerprint]bool{}
			for _, c := range r.Last.Candidates {
				tried[c.Key.Path] = c.BytesRead > 0
			}
			for _, p := range tt.paths {
				if !tried[p.Fingerprint] {
					t.Errorf("%s was never tried", p.Fingerprint.Short())
				}
			}
			if t.Failed() {
				story(t, r)
			}
		})
	}
}

// fairness is Jain's index: 1 when all are equal, 1/n when one has everything.
func fairness(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum, squares = sum+v, squares+v*v
	}
	return sum * sum / (float64(len(x)) * squares)
}

func crowd(selector string, places int, announce bool) (links []Link, clients []Client) {
	links, paths := direct(100, 10, 60, 15, 40, 20, 20, 10)
	if !announce {
		paths = silentAbout(paths)
	}
	for i := range 50 {
		c := one(selector, paths, places)
		c.Seed = uint64(i)
		clients = append(clients, c)
	}
	return links, clients
}

// setting is what the clients of a crowd know, and how many paths each may use.
type setting struct {
	places   int
	announce bool
}

func TestFiftyClientsAtOnce(t *testing.T) { fiftyClients(t, setting{2, false}) }

func TestLargeFiftyClientsAtOnce(t *testing.T) {
	fiftyClients(t, setting{4, true}, setting{2, true}, setting{1, true})
}

func fiftyClients(t *testing.T, settings ...setting) {
	t.Parallel()
	for _, tt := range settings {
		t.Run(fmt.Sprintf("%d places, announced %v", tt.places, tt.announce), func(t *testing.T) {
			for _, selector := range []string{"all", "adaptive"} {
				links, clients := crowd(selector, tt.places, tt.announce)
				end := end
				if selector == "all" {
					end = 3 * time.Minute // it does not change afterwards
				}
				out := Run(Scenario{Links: links, Clients: clients, Duration: end, Seed: 1})
				var total float64
				var rates []float64
				changes, most := 0.0, 0.0
				for _, r := range out {
					rate := r.Rate(2*steady, end)
					total += rate
					rates = append(rates, rate)
					changes += needless(r, 2*steady, end) / 50
					most = math.Max(most, needless(r, 2*steady, end))
				}
				if selector == "all" {
					t.Logf("all: %.3f of the limit, fairness %.3f", total/limit(220), fairness(rates))
					continue
				}
				atLeast(t, "of the limit", total/limit(220), 0.95)
				atLeast(t, "fairness", fairness(rates), 0.9)
				atMost(t, "needless changes a minute, mean", changes, 1)
				atMost(t, "needless changes a minute, most", most, 1.5)
				if t.Failed() {
					story(t, out[0])
				}
			}
		})
	}
}

// Several seeders, and clients that share an access link.
func TestSeveralSeedersBehindOneAccessLink(t *testing.T) {
	t.Parallel()
	access := NewLink(ia(1), ia(2), 1, 40, 5*ms)
	links := []Link{access}
	var peers [][]pathsel.Path
	for n := range 3 {
		var paths []pathsel.Path
		for i := range 2 {
			l := NewLink(ia(2), ia(10+n), uint64(10*(n+1)+i), 30, time.Duration(10+10*i)*ms)
			links = append(links, l)
			paths = append(paths, PathOver(access, l))
		}
		peers = append(peers, paths)
	}
	var clients []Client
	for i := range 2 {
		c := one("adaptive", nil, 8)
		c.Peers, c.Seed = peers, uint64(i)
		clients = append(clients, c)
	}
	out := Run(Scenario{Links: links, Clients: clients, Duration: end, Seed: 1})
	atLeast(t, "of the access link", carried(out, access, end)/40e6, 0.95)
	for _, r := range out {
		atLeast(t, "of the fair share", r.Rate(steady, end)/limit(20), 0.8)
		for _, id := range []pathsel.PeerID{"a", "b", "c"} {
			n := 0
			for _, c := range r.Last.Candidates {
				if c.Key.Peer == id && c.State.Carries() {
					n++
				}
			}
			if n == 0 {
				t.Errorf("peer %s is left without a path", id)
			}
		}
		atMost(t, "needless changes a minute", needless(r, 3*steady, end), 1)
		if t.Failed() {
			story(t, r)
		}
	}
}

// A path that is weak for a while leaves its place to one that comes up meanwhile, and is used
// again later.
func TestWeakForAWhile(t *testing.T) {
	t.Parallel()
	links, paths := direct(20, 5, 20, 10, 2, 10)
	during(&links[1], 10*time.Second, 2*time.Minute, Condition{Rate: 20e6, Loss: 0.8})
	during(&links[2], 0, time.Minute, Condition{Down: true})
	r := play("adaptive", links, paths, 2, 20*time.Minute)
	atLeast(t, "from 10 to 20 minutes, of both fast paths", r.Rate(10*time.Minute, 20*time.Minute)/limit(20, 20), 0.9)
	if t.Failed() {
		story(t, r)
	}
}
