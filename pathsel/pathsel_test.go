package pathsel

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

func mustIA(s string) IA {
	ia, err := ParseIA(s)
	if err != nil {
		panic(err)
	}
	return ia
}

func ifs(s ...string) []Interface {
	var out []Interface
	for _, x := range s {
		i, err := ParseInterface(x)
		if err != nil {
			panic(err)
		}
		out = append(out, i)
	}
	return out
}

func TestParseIA(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want IA
		out  string // "" for an error
	}{
		{"1-ff00:0:110", 1<<48 | 0xff0000000110, "1-ff00:0:110"},
		{"64-559", 64<<48 | 559, "64-559"},
		{"65535-ffff:ffff:ffff", 1<<64 - 1, "65535-ffff:ffff:ffff"},
		{"0-0", 0, "0-0"},
		{"1-4294967295", 1<<48 | 1<<32 - 1, "1-4294967295"},
		{"1-0:0:1", 1<<48 | 1, "1-1"},
		{"1-4294967296", 0, ""},
		{"1", 0, ""}, {"", 0, ""}, {"65536-1", 0, ""}, {"1-ff00:0", 0, ""}, {"1-ff00:0:1:2", 0, ""},
		{"1-ff00:0:11110", 0, ""}, {"1-ff00::110", 0, ""}, {"1-+1", 0, ""}, {"-1-1", 0, ""}, {"1-g:0:1", 0, ""},
	} {
		got, err := ParseIA(tt.in)
		if (err != nil) != (tt.out == "") || got != tt.want {
			t.Errorf("ParseIA(%q) = %v, %v", tt.in, got, err)
		}
		if err == nil && got.String() != tt.out {
			t.Errorf("ParseIA(%q).String() = %q, want %q", tt.in, got, tt.out)
		}
	}
}

func FuzzParseInterface(f *testing.F) {
	for _, s := range []string{"1-ff00:0:110#1", "1-2#0", "#", "1-ff00:0:110#65536"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		i, err := ParseInterface(s)
		if err != nil {
			return
		}
		if again, err := ParseInterface(i.String()); err != nil || again != i {
			t.Fatalf("%q parses to %v, whose text parses to %v, %v", s, i, again, err)
		}
	})
}

// The value was printed by scionproto's snet.Fingerprint for the same interfaces.
func TestFingerprintIsThatOfTheScionTools(t *testing.T) {
	got := FingerprintOf(ifs("1-ff00:0:110#1", "1-ff00:0:111#41"))
	if want := Fingerprint("2907f9f7d09cd1b33d0508f09172ed6342831761ecd30207c94dfaeb37ce7ed8"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := FingerprintOf(nil); got != "" || got.Short() != "local" {
		t.Errorf("path inside the AS: %q, %q", got, got.Short())
	}
}

func TestSharesLink(t *testing.T) {
	p := Path{Interfaces: ifs("1-1#1", "1-2#1", "1-2#2", "1-3#1", "1-3#2", "1-4#1")}
	for _, tt := range []struct {
		name string
		q    []Interface
		want bool
	}{
		{"disjoint", ifs("1-1#9", "1-5#1", "1-5#2", "1-4#9"), false},
		{"first link", ifs("1-1#1", "1-2#1", "1-2#9", "1-4#9"), true},
		{"last link", ifs("1-1#9", "1-3#9", "1-3#2", "1-4#1"), true},
		{"same AS, other links", ifs("1-1#9", "1-2#9", "1-2#8", "1-4#8"), false},
		{"itself", p.Interfaces, true},
	} {
		a := newAdaptation(View{Candidates: []Candidate{{Path: p}, {Path: Path{Interfaces: tt.q}}}})
		if got := a.crosses(1, a.linksOf([]int{0})); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	p.Src = mustIA("1-1")
	if got := p.ASes(); len(got) != 4 || got[3] != mustIA("1-4") || p.Hops() != 3 {
		t.Errorf("ASes %v, hops %d", got, p.Hops())
	}
}

func TestMap(t *testing.T) {
	paths := []Path{{Fingerprint: "a"}, {Fingerprint: "b"}, {Fingerprint: "a"}, {Fingerprint: "c"}}
	for _, tt := range []struct {
		max  int
		want []Fingerprint
	}{
		{0, nil}, {1, []Fingerprint{"a"}}, {2, []Fingerprint{"a", "b"}}, {3, []Fingerprint{"a", "b", "c"}}, {9, []Fingerprint{"a", "b", "c"}},
	} {
		before := slices.Clone(paths)
		var got []Fingerprint
		for _, c := range Map("p", paths, tt.max) {
			if c.Key != (Key{Peer: "p", Path: c.Path.Fingerprint}) || c.State != Idle {
				t.Errorf("candidate %+v", c)
			}
			got = append(got, c.Path.Fingerprint)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("max %d: %v, want %v", tt.max, got, tt.want)
		}
		if !reflect.DeepEqual(before, paths) {
			t.Error("Map changed its input")
		}
	}
}

func TestFixedSelectors(t *testing.T) {
	now := time.Unix(1000, 0)
	cand := func(peer PeerID, path Fingerprint, s State) Candidate {
		return Candidate{Key: Key{Peer: peer, Path: path}, State: s}
	}
	failed := func(peer PeerID, path Fingerprint, retry time.Duration) Candidate {
		return Candidate{Key: Key{Peer: peer, Path: path}, State: Failed, Failures: 1, RetryAt: now.Add(retry)}
	}
	for _, tt := range []struct {
		name, selector string
		view           []Candidate
		want           []string
	}{
		{"first opens one for each peer", "first",
			[]Candidate{cand("p", "a", Idle), cand("p", "b", Idle), cand("q", "a", Idle)}, []string{"open p/a", "open q/a"}},
		{"all opens up to the budget", "all",
			[]Candidate{cand("p", "a", Idle), cand("p", "b", Idle), cand("p", "c", Idle), cand("p", "d", Idle)},
			[]string{"open p/a", "open p/b", "open p/c"}},
		{"nothing to do", "all", []Candidate{cand("p", "a", Active), cand("p", "b", Opening)}, nil},
		{"too soon after a failure", "all", []Candidate{failed("p", "a", time.Second)}, nil},
		{"again after a failure", "all", []Candidate{failed("p", "a", 0)}, []string{"open p/a"}},
		{"over the budget is closed", "first", []Candidate{cand("p", "a", Active), cand("p", "b", Active)}, []string{"close p/b"}},
		{"first stays on a failed path", "first", []Candidate{failed("p", "a", time.Second), cand("p", "b", Idle)}, nil},
	} {
		s, err := New(tt.selector)
		if err != nil || s.Name() != tt.selector {
			t.Fatal(s, err)
		}
		v := View{Now: now, MaxPaths: 3, Candidates: tt.view}
		before := slices.Clone(tt.view)
		var got []string
		for _, d := range s.Decide(v).Decisions {
			got = append(got, d.Action.String()+" "+string(d.Key.Peer)+"/"+string(d.Key.Path))
			if d.Reason == "" {
				t.Errorf("%s: decision without a reason", tt.name)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		if !reflect.DeepEqual(before, tt.view) {
			t.Errorf("%s: the view was changed", tt.name)
		}
	}
	if _, err := New("best"); err == nil {
		t.Error("an unknown selector was accepted")
	}
}

func TestRetryDelay(t *testing.T) {
	var got []time.Duration
	for n := range 8 {
		got = append(got, RetryDelay(n)/time.Second)
	}
	if want := []time.Duration{1, 1, 2, 4, 8, 16, 30, 30}; !slices.Equal(got, want) {
		t.Errorf("got %v s, want %v s", got, want)
	}
}
