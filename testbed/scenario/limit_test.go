package scenario

import (
	"math"
	"math/rand/v2"
	"testing"

	"braid/pathsel"
)

func link(n int) pathsel.Interface { return pathsel.Interface{IA: 1, ID: uint64(n)} }

func way(share float64, links ...int) route {
	r := route{fingerprint: pathsel.Fingerprint(rune('a' + links[0])), share: share}
	for _, l := range links {
		r.links, r.interfaces = append(r.links, link(l)), append(r.interfaces, link(l))
	}
	return r
}

// near compares to a part in a billion.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

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
		{"the same path for many", []route{way(.9, 1), way(.9, 1), way(.9, 1), way(.9, 1)}, 9e6},
	} {
		if got, err := mostPayload(tt.routes, caps); err != nil || !near(got, tt.want) {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	if _, err := mostPayload([]route{way(.9, 4)}, caps); err == nil {
		t.Error("a path without a limit has one")
	}
}

// For one pair of hosts and equal headers, the programme over all paths is the maximum flow, which in a network of
// layers in series is its narrowest layer.
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
		if got, err := mostPayload(routes, caps); err != nil || !near(got, .9*narrowest) {
			t.Fatalf("%d layers, %d paths: %v, %v, want %v", layers, len(paths), got, err, .9*narrowest)
		}
	}
}
