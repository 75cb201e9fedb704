package scenario

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"braid/pathsel"
)

func link(n int) pathsel.Interface { return pathsel.Interface{IA: 1, ID: uint64(n)} }

func way(share float64, links ...int) route {
	r := route{Fingerprint: pathsel.Fingerprint(rune('a' + links[0])), Share: share}
	for _, l := range links {
		r.Links, r.Interfaces = append(r.Links, link(l)), append(r.Interfaces, link(l))
	}
	return r
}

// near compares to a part in a billion.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// acknowledged returns the way with acknowledgements over one link.
func acknowledged(r route, acks float64, back int) route {
	r.Acks, r.Back = acks, []pathsel.Interface{link(back)}
	return r
}

// What can be said in closed form.
func TestMostPayload(t *testing.T) {
	caps := map[pathsel.Interface]float64{link(1): 10e6, link(2): 20e6, link(3): 5e6, link(4): math.Inf(1), link(5): 0}
	for _, tt := range []struct {
		name   string
		routes []route
		want   float64
	}{
		{"no path", nil, 0},
		{"one path: its slowest link", []route{way(.9, 2, 1, 4)}, 9e6},
		{"disjoint paths: the sum", []route{way(.9, 1), way(.8, 2)}, 9e6 + 16e6},
		{"a shared link: its rate once", []route{way(.9, 1, 2), way(.9, 1, 3), way(.9, 1)}, 9e6},
		{"a shared link: less header wins", []route{way(.8, 1, 4), way(.9, 1, 2)}, 9e6},
		{"a shared link that is wide enough", []route{way(.9, 2, 1), way(.9, 2, 3)}, 13.5e6},
		{"a link that is down", []route{way(.9, 5, 1), way(.9, 2)}, 18e6},
		{"all down", []route{way(.9, 5)}, 0},
		{"the way back is wide enough", []route{acknowledged(way(.9, 2), .05, 3)}, 18e6},
		{"acknowledgements fill the way back", []route{acknowledged(way(.9, 2), .5, 3)}, 10e6},
		{"payload and acknowledgements share a link", []route{
			acknowledged(way(.5, 1), .05, 2), acknowledged(way(1, 2), .05, 1),
		}, (20e6*(2-.05) + 10e6*(1-.05)) / (2 - .05*.05)},
		{"the way back is down", []route{acknowledged(way(.9, 2), .05, 5), way(.9, 1)}, 9e6},
		{"the same path for many", []route{way(.9, 1), way(.9, 1), way(.9, 1), way(.9, 1)}, 9e6},
	} {
		if got := mostPayload(tt.routes, caps); !near(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if v := mostPayload([]route{way(.9, 4)}, caps); !math.IsNaN(v) {
		t.Errorf("a path without a limit has one: %v", v)
	}
}

// The least time, in closed form: what is to come divided by what the links carry, each while it
// does.
func TestLeastTime(t *testing.T) {
	caps := func(a, b float64) map[pathsel.Interface]float64 {
		return map[pathsel.Interface]float64{link(1): a, link(2): b}
	}
	leech := func(start, megabytes float64, routes ...route) *Leecher {
		return &Leecher{Start: start, End: 1000, routes: routes, Payload: payload(999, megabytes*1e6)}
	}
	one, two := way(1, 1), way(1, 2)
	always := []linkState{{t: -5, capacity: caps(8e6, 16e6)}}
	for _, tt := range []struct {
		name string
		r    *Record
		want float64 // 0: none
	}{
		{"one leecher over both links", &Record{Leechers: []*Leecher{leech(-1, 30, one, two)}, states: always}, 10},
		{"a link is away for ten seconds", &Record{
			Leechers: []*Leecher{leech(0, 60, one, two)}, states: []linkState{{t: -5, capacity: caps(8e6, 16e6)}, {t: 5, capacity: caps(8e6, 0)}, {t: 15, capacity: caps(8e6, 16e6)}},
		}, 5 + 10 + 35./3},
		{"leechers alike share", &Record{Leechers: []*Leecher{leech(0, 30, one, two), leech(0, 30, one, two)}, states: always}, 20},
		{"the one with the slow link is last", &Record{Leechers: []*Leecher{leech(0, 30, one), leech(0, 30, two)}, states: always}, 30},
		{"one comes later, and leaves with nothing", &Record{Leechers: []*Leecher{leech(0, 30, two), leech(10, 0, one)}, states: always}, 15},
		{"one comes later", &Record{Leechers: []*Leecher{leech(0, 1, two), leech(10, 8, one)}, states: always}, 18},
		{"datagrams have their rate", &Record{
			Leechers: []*Leecher{leech(0, 15, two)}, states: always,
			Flows: []*Flow{{Traffic: Traffic{Kind: Datagrams, Rate: 8e6}, route: two, Start: 0, End: 10}},
		}, 12.5},
		{"a rival takes what it gets", &Record{
			Leechers: []*Leecher{leech(0, 15, two)}, states: always, Flows: []*Flow{{Traffic: Traffic{Kind: Bulk}, route: two}},
		}, 0},
		{"leechers feed each other", &Record{Leechers: []*Leecher{leech(0, 15, two)}, states: always, feed: true}, 0},
		{"a link that never works", &Record{Leechers: []*Leecher{leech(0, 15, two)}, states: []linkState{{t: -5, capacity: caps(8e6, 0)}}}, 0},
	} {
		tt.r.End = 1000
		got := tt.r.leastTime()
		if finite(got) != (tt.want > 0) || finite(got) && !near(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The limit over time is what its sum says.
func TestLimitSteps(t *testing.T) {
	r := steady()
	steps := r.limit()
	if want := []LimitStep{{-1, 16}, {5, 8}, {10, 16}}; !slices.Equal(steps, want) {
		t.Errorf("%v, want %v", steps, want)
	}
}

// For one pair of hosts and equal headers, the programme over all paths is the maximum flow, which
// in a network of layers in series is its narrowest layer.
func TestMostPayloadLayers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		layers := 1 + rng.IntN(3)
		caps := map[pathsel.Interface]float64{}
		narrowest, n := math.Inf(1), 0
		paths := [][]int{{}}
		for range layers {
			width := 1 + rng.IntN(3)
			var sum float64
			var next [][]int
			for range width {
				n++
				c := float64(1+rng.IntN(40)) * 1e6
				caps[link(n)] = c
				sum += c
				for _, p := range paths {
					next = append(next, append(p[:len(p):len(p)], n))
				}
			}
			narrowest, paths = min(narrowest, sum), next
		}
		var routes []route
		for _, p := range paths {
			routes = append(routes, way(.9, p...))
		}
		if got := mostPayload(routes, caps); !near(got, .9*narrowest) {
			t.Fatalf("%d layers, %d paths: %v, want %v", layers, len(paths), got, .9*narrowest)
		}
	}
}

// A programme that cannot be solved, such as one without a bound, has no result, and so the run lacks
// the figures that need it.
func TestUnsolvable(t *testing.T) {
	x := maximise([]float64{1, 0}, 1, func(_ *mat.Dense, b []float64) { b[0] = 1 })
	if len(x) != 2 || !math.IsNaN(x[0]) || !math.IsNaN(x[1]) {
		t.Errorf("the variables are %v", x)
	}
}
