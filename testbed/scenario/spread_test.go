package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"braid/pathsel"
)

// star is a swarm in which everybody has a link of his own to the middle, with these rates up and
// down; the first is the seed. share is the payload's part of a packet, acks what is acknowledged
// of it.
func star(up, down []float64, share, acks float64) (ways []overlay, capacity map[pathsel.Interface]float64) {
	capacity = map[pathsel.Interface]float64{}
	name := func(i int) string { return fmt.Sprint("p", i) }
	for i := range up {
		capacity[link(2*i)], capacity[link(2*i+1)] = up[i], down[i]
		for j := range up {
			if i != j {
				w := overlay{name(i), name(j), way(share, 2*i, 2*j+1)}
				w.Back, w.Acks = []pathsel.Interface{link(2 * j), link(2*i + 1)}, acks
				ways = append(ways, w)
			}
		}
	}
	return ways, capacity
}

func spread(t *testing.T, ways []overlay, capacity map[pathsel.Interface]float64, leechers int) float64 {
	t.Helper()
	var receivers []string
	for i := range leechers {
		receivers = append(receivers, fmt.Sprint("p", i+1))
	}
	rate := spreadRate(ways, func(n string) bool { return n == "p0" }, receivers, capacity)
	if math.IsNaN(rate) {
		t.Fatal("the rate cannot be computed")
	}
	return rate
}

// On a star the time is known in closed form (Kumar and Ross 2006): the largest of F/u_s, F/d_min
// and N F/(u_s + sum u_i).
func TestSpreadStar(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 3, 6, 10, 16} {
		for range 3 {
			up, down := make([]float64, n+1), make([]float64, n+1)
			sum, least := 0.0, math.Inf(1)
			for i := range up {
				up[i], down[i] = float64(1+rng.IntN(20))*1e6, float64(1+rng.IntN(20))*1e6
				sum += up[i]
				if i > 0 {
					least = min(least, down[i])
				}
			}
			want := min(up[0], least, sum/float64(n)) * .9
			ways, capacity := star(up, down, .9, 0)
			if got := spread(t, ways, capacity, n); math.Abs(got-want) > 1e-5*want {
				t.Errorf("%d leechers, up %v, down %v: %v, want %v", n, up, down, got, want)
			}
			// What is acknowledged takes from what else goes that way.
			ways, capacity = star(up, down, .9, .02)
			if got := spread(t, ways, capacity, n); got > want*(1+1e-5) || got < want*.9 {
				t.Errorf("%d leechers with acknowledgements: %v of %v", n, got, want)
			}
		}
	}
}

// Without leechers that help it is the maximum flow, and a leecher in between is worth what his
// links are.
func TestSpreadElsewhere(t *testing.T) {
	capacity := map[pathsel.Interface]float64{link(1): 10e6, link(2): 4e6, link(3): 6e6, link(4): math.Inf(1)}
	two := []overlay{{"p0", "p1", way(1, 2)}, {"p0", "p1", way(1, 3)}}
	if got := spread(t, two, capacity, 1); math.Abs(got-10e6) > 1 {
		t.Errorf("two ways: %v", got)
	}
	// p2 hears of the seed only through p1.
	chain := append(two, overlay{"p1", "p2", way(1, 1)})
	if got := spread(t, chain, capacity, 2); math.Abs(got-10e6) > 1 {
		t.Errorf("a chain: %v", got)
	}
	// What link 2 carries for p2 it does not carry for p1.
	if got := spread(t, append(two, overlay{"p1", "p2", way(1, 2)}), capacity, 2); math.Abs(got-4e6) > 1 {
		t.Errorf("a link that both need: %v", got)
	}
	// Two in one place are as good as one, and who is where the seed is needs nothing.
	if got := spread(t, append(two, overlay{"p2", "p1", route{Share: 1}}), capacity, 2); math.Abs(got-10e6) > 1 {
		t.Errorf("two in one place: %v", got)
	}
	if v := spreadRate([]overlay{{"p0", "p1", route{Share: 1}}}, func(n string) bool { return n == "p0" }, []string{"p1"}, capacity); !math.IsNaN(v) {
		t.Errorf("a limit where there is no link: %v", v)
	}
	if got := spread(t, two, capacity, 2); math.Abs(got) > 1 {
		t.Errorf("somebody whom nobody reaches gets %v", got)
	}
	if v := spreadRate([]overlay{{"p0", "p1", way(1, 4)}}, func(n string) bool { return n == "p0" }, []string{"p1"}, capacity); !math.IsNaN(v) {
		t.Errorf("no limit is one: %v", v)
	}
}

// A flag and its value may be one word.
func TestThrottled(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want bool
	}{
		{nil, false}, {[]string{"--max-uploads", "4"}, false}, {[]string{"--download-rate", "1mbit"}, false},
		{[]string{"--max-uploads", "4", "--upload-rate", "1mbit"}, true}, {[]string{"--upload-rate=1mbit"}, true},
	} {
		if got := (Scenario{Peers: []Peer{{}, {Args: tt.args}}}).throttled(); got != tt.want {
			t.Errorf("%q: %v", tt.args, got)
		}
	}
}

func TestNeighbours(t *testing.T) {
	s := Scenario{Seed: 1, Peers: []Peer{{Name: "s", Role: Seed, AS: 1}}}
	for i := range 8 {
		s.Peers = append(s.Peers, Peer{Name: fmt.Sprint("l", i), Role: Leech, AS: pathsel.IA(2 + i)})
	}
	for _, how := range []string{Nearest, Random, Mixed} {
		x := s
		x.Peers = append([]Peer(nil), s.Peers...)
		if err := x.chooseNeighbours(how, 3); err != nil {
			t.Fatal(err)
		}
		for i, p := range x.Peers[1:] {
			if want := min(3, i+1); len(p.From) != want {
				t.Errorf("%s: %s has %v, want %d", how, p.Name, p.From, want)
			}
			seen := map[string]bool{p.Name: true}
			for _, f := range p.From {
				if seen[f] {
					t.Errorf("%s: %s has %v", how, p.Name, p.From)
				}
				seen[f] = true
			}
		}
	}
	if err := s.chooseNeighbours("lucky", 3); err == nil {
		t.Error("any neighbours")
	}
	if err := s.chooseNeighbours(Nearest, 0); err == nil {
		t.Error("no neighbours")
	}
	if d, ok := delays(s.topology, 1)[2]; ok {
		t.Errorf("a way of %v without links", d)
	}
}

// What fails is asked again, not for ever, and not once nobody waits for it.
func TestPatiently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		answer := func(good int) func() (int, error) {
			asked = 0
			return func() (int, error) {
				if asked++; asked < good {
					return 0, errors.New("busy")
				}
				return asked, nil
			}
		}
		if v, err := patiently(t.Context(), answer(3)); v != 3 || err != nil {
			t.Errorf("%v, %v", v, err)
		}
		if _, err := patiently(t.Context(), answer(100)); err == nil || asked != 5 {
			t.Errorf("asked %d times: %v", asked, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := patiently(ctx, answer(100)); err == nil || asked != 1 {
			t.Errorf("asked %d times after the end: %v", asked, err)
		}
	})
}
