package pathsel

import (
	"reflect"
	"slices"
	"testing"
)

func TestHintsRank(t *testing.T) {
	to := func(p Path, dst IA) Path { p.Dst = dst; return p }
	h := Hints{1: {{Path: "b"}, {Path: "a"}}, 2: {{Path: "a"}}}
	for _, tt := range []struct {
		path Path
		rank int
	}{{to(pathB, 1), 1}, {to(pathA, 1), 2}, {to(pathA, 2), 1}, {to(pathB, 2), 0}, {to(pathA, 3), 0}} {
		if got := h.Rank(tt.path); got != tt.rank {
			t.Errorf("%s to %d: %d, want %d", tt.path.Fingerprint, tt.path.Dst, got, tt.rank)
		}
	}
	got := h.Merge(Hints{2: {{Path: "c"}}, 3: {{Path: "d"}}})
	want := Hints{1: {{Path: "b"}, {Path: "a"}}, 2: {{Path: "c"}}, 3: {{Path: "d"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if len(h) != 2 || h[2][0].Path != "a" {
		t.Errorf("changed to %v", h)
	}
}

// A hint decides what is tried first, whatever the paths announce. It overrides neither the user's
// preference, nor measurements, nor the rule that the first paths are disjoint.
func TestAdaptiveHints(t *testing.T) {
	s, err := New("adaptive")
	if err != nil {
		t.Fatal(err)
	}
	hint := func(n int) func(*Candidate) { return func(c *Candidate) { c.Hint = n } }
	tried := func(f Fingerprint) Memory {
		m := adaptiveMemory{}
		m.path(Key{Peer: "p", Path: f}).Tried = t0
		return Memory{value: m}
	}
	wide := pathA
	wide.Bandwidth = 1e12
	failed := idle(pathB).with(func(c *Candidate) { c.Hint, c.State, c.Failures, c.RetryAt = 1, Failed, 1, t0 })
	for _, tt := range []struct {
		name       string
		places     int
		preference Preference
		memory     Memory
		candidates []Candidate
		opened     string // paths in their order, by their names
	}{
		{"first the one with the best", 1, nil, Memory{}, []Candidate{idle(wide), idle(pathB).with(hint(2)), idle(pathC).with(hint(1))}, "c"},
		{"then the next", 2, nil, Memory{}, []Candidate{idle(wide), idle(pathB).with(hint(2)), idle(pathC).with(hint(1))}, "cb"},
		{"then those without", 3, nil, Memory{}, []Candidate{idle(wide), idle(pathB).with(hint(2)), idle(pathC).with(hint(1))}, "cba"},
		{"the user first", 1, Preference{ByHops}, Memory{}, []Candidate{idle(wide), idle(pathC).with(hint(1))}, "a"},
		{"no shared links at the start", 2, nil, Memory{}, []Candidate{idle(pathA), idle(pathC).with(hint(1)), idle(pathD).with(hint(2))}, "ca"},
		{"not twice", 1, nil, tried("b"), []Candidate{failed, idle(pathC).with(hint(2))}, "c"},
	} {
		for seed := range uint64(30) {
			v := View{Now: t0, MaxPaths: tt.places, Seed: seed, Candidates: tt.candidates, Preference: tt.preference, Memory: tt.memory}
			got := ""
			for _, d := range s.Decide(v).Decisions {
				if d.Action == Open {
					got += string(d.Key.Path)
				}
			}
			if got != tt.opened {
				t.Errorf("%s, seed %d: %q opened, want %q", tt.name, seed, got, tt.opened)
				break
			}
		}
	}
	// With more paths than places, paths without a hint get their turn first, then hinted ones by
	// rank.
	for _, tt := range []struct {
		hints [2]int // of b and c
		next  string
	}{{[2]int{0, 1}, "open b"}, {[2]int{1, 0}, "open c"}, {[2]int{3, 2}, "open c"}, {[2]int{2, 3}, "open b"}} {
		v := View{Now: t0, MaxPaths: 1, Candidates: []Candidate{rated(pathA, 10), idle(pathB).with(hint(tt.hints[0])), idle(pathC).with(hint(tt.hints[1]))}}
		for seed := range uint64(30) {
			v.Seed = seed
			if got := decisions(s.Decide(v)); !slices.Equal(got, []string{"close a", tt.next}) {
				t.Fatalf("hints %v, seed %d: %v, want %s", tt.hints, seed, got, tt.next)
			}
		}
	}
}
