package pathsel

import (
	"testing"
	"time"
)

func TestWithout(t *testing.T) {
	if _, err := ParseWithout([]string{"luck"}); err == nil {
		t.Error("luck can be left out")
	}
	w, err := ParseWithout([]string{"handshake", "bandwidth", "disjointness", "exploration"})
	if err != nil || w != (Without{true, true, true, true}) {
		t.Fatalf("%+v, %v", w, err)
	}
	v := View{Now: time.Unix(1, 0), Candidates: []Candidate{{
		Key: Key{Peer: "p", Path: "f"}, Handshake: time.Second,
		Path: Path{Fingerprint: "f", Bandwidth: 5, Interfaces: []Interface{{1, 1}, {2, 1}}},
	}}}
	for _, tt := range []struct {
		without                        Without
		handshake, bandwidth, disjoint bool
	}{
		{Without{Handshake: true}, false, true, true}, {Without{Bandwidth: true}, true, false, true}, {Without{Disjointness: true}, true, true, false},
	} {
		c := tt.without.hide(v).Candidates[0]
		if c.Handshake > 0 != tt.handshake || c.Path.Bandwidth > 0 != tt.bandwidth || len(c.Path.Interfaces) > 0 != tt.disjoint {
			t.Errorf("%+v leaves %+v", tt.without, c)
		}
	}
	if c := v.Candidates[0]; c.Handshake == 0 || c.Path.Bandwidth == 0 || len(c.Path.Interfaces) == 0 {
		t.Error("the caller's view has changed")
	}
}

// Without exploration, every path is used as soon as there is a place, even if links are shared,
// and nothing is tried.
func TestWithoutExploration(t *testing.T) {
	s, err := Config{Without: Without{Exploration: true}}.New("adaptive")
	if err != nil || s.Name() != "adaptive" {
		t.Fatalf("%v, %v", s, err)
	}
	shared := []Interface{{1, 1}, {2, 1}}
	v := View{Now: time.Unix(1, 0), MaxPaths: 2, Candidates: []Candidate{
		{Key: Key{Peer: "p", Path: "f"}, Path: Path{Fingerprint: "f", Interfaces: shared}},
		{Key: Key{Peer: "p", Path: "g"}, Path: Path{Fingerprint: "g", Interfaces: shared}},
	}}
	opened := 0
	for _, d := range s.Decide(v).Decisions {
		if d.Action == Open {
			opened++
		}
	}
	if opened != 2 {
		t.Errorf("%d of 2 paths were opened", opened)
	}
}
