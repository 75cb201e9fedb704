package client

import (
	"slices"
	"testing"
)

func missingOf(peers ...int) []missingPiece {
	out := make([]missingPiece, len(peers))
	for i, n := range peers {
		out[i] = missingPiece{index: i, peers: n}
	}
	return out
}

func TestRarestFirst(t *testing.T) {
	r := newRarest(6)
	raise, lower := r.choose(missingOf(3, 1, 0, 2, 1, 2), 3)
	slices.Sort(raise)
	if len(raise) != 3 || raise[0] != 1 || !slices.Contains(raise, 4) || slices.Contains(raise, 0) || slices.Contains(raise, 2) || len(lower) != 0 {
		t.Fatalf("raise %v, lower %v: want both that one peer has, and one that two have", raise, lower)
	}
	// Nothing has changed.
	if raise, lower = r.choose(missingOf(3, 1, 0, 2, 1, 2), 3); len(raise)+len(lower) != 0 {
		t.Errorf("raise %v, lower %v", raise, lower)
	}
	// Everybody has got 1 and 4, of which some is there of 4; what remains is rarer.
	m := missingOf(3, 5, 0, 2, 5, 2)
	m[4].started = true
	raise, lower = r.choose(m, 3)
	if !slices.Equal(lower, []int{1}) || len(raise) != 1 || !r.first[3] || !r.first[4] || !r.first[5] {
		t.Errorf("raise %v, lower %v, first %v", raise, lower, r.first)
	}
	// What is complete is not lowered: it is asked for no more.
	if _, lower = r.choose(missingOf(3)[:1], 1); slices.ContainsFunc(lower, func(i int) bool { return i != 0 }) || !r.first[0] || len(r.first) != 1 {
		t.Errorf("lower %v, first %v", lower, r.first)
	}
}

// Two leechers that see the same choose differently, and one of them does not choose by number.
func TestRarestByChance(t *testing.T) {
	peers := make([]int, 1000)
	for i := range peers {
		peers[i] = 1
	}
	a, _ := newRarest(len(peers)).choose(missingOf(peers...), 10)
	b, _ := newRarest(len(peers)).choose(missingOf(peers...), 10)
	slices.Sort(a)
	slices.Sort(b)
	if slices.Equal(a, b) || a[9] == 9 {
		t.Errorf("%v and %v", a, b)
	}
}
