package pathsel

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// threeASes leaves 1-ff00:0:110 by interface 1 and crosses 1-ff00:0:111 (2 in, 3 out) to 2-559.
var threeASes = Path{Fingerprint: "three", Interfaces: ifs("1-ff00:0:110#1", "1-ff00:0:111#2", "1-ff00:0:111#3", "2-559#4")}

func TestSequence(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want bool
	}{
		{"", true}, {"  ", true},
		{"0*", true}, {"0+", true}, {"0 0 0", true}, {"0 0", false}, {"0-0#0 0-0#0 0-0#0", true},
		{"0 0 0?", true}, {"0 0 0+", true}, {"0 0 0 0?", true}, {"0 0 0 0+", false}, {"(0 0)?", false}, {"0?", false},
		{"1 1 2", true}, {"1 2 2", false}, {"1+ 2", true},
		{"1-ff00:0:110 0 0", true}, {"1-FF00:0:110 0 0", true}, {"1-ff00:0:112 0 0", false}, {"0 0 2-559", true}, {"0 0 0-559", true},
		{"1-ff00:0:110#1 1-ff00:0:111#2,3 2-559#4", true},
		{"1-ff00:0:110#0,1 1-ff00:0:111#0,3 2-559#4,0", true},
		{"0 1-ff00:0:111#2 0", true}, {"0 1-ff00:0:111#3 0", true}, {"0 1-ff00:0:111#4 0", false},
		{"0 1-ff00:0:111#3,0 0", false}, {"0 1-ff00:0:111#2,0 0", true}, {"0 1-ff00:0:111#0,2 0", false},
		{"0 (1-ff00:0:111 | 1-ff00:0:112) 0", true}, {"0 1-ff00:0:112|1-ff00:0:111 0", true}, {"0 1-ff00:0:112|64-12345 0", false},
		{"(0 0)|0 0", true}, // (0 0)|0, then 0
		{"0 0 0 ?  ", true}, {"1 -ff00:0:110 # 1 0 0", true}, {"0*?+ 0", true}, {"00 0", true},
	} {
		s, err := ParseSequence(tt.in)
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
			continue
		}
		if got := s.Allows(threeASes); got != tt.want {
			t.Errorf("%q: %v, want %v", tt.in, got, tt.want)
		}
	}
	for in, want := range map[string]bool{"0*": true, "0* 0?": true, "0+": false, "0": false, "1-ff00:0:110#1,2*": true} {
		if s, err := ParseSequence(in); err != nil || s.Allows(Path{}) != want {
			t.Errorf("%q on the path inside an AS: %v, %v", in, !want, err)
		}
	}
	if s, _ := ParseSequence("0*"); s.Allows(Path{Interfaces: threeASes.Interfaces[:3]}) {
		t.Error("half a link was allowed")
	}
	for _, in := range []string{
		"0-0-0#0", "0#0", "1#0", "(0", "0)", "|0", "0|", "*", "1-#1", "1-ff00:0#1", "1-1#", "1-1#1,", "70000", "1-1#70000",
		"1-99999999999", "x", "()", "1-g", strings.Repeat("(", 100) + "0" + strings.Repeat(")", 100), strings.Repeat("0 ", 3000),
	} {
		if _, err := ParseSequence(in); err == nil {
			t.Errorf("%.20q was accepted", in)
		}
	}
}

func FuzzParseSequence(f *testing.F) {
	for _, s := range []string{"0*", "1-ff00:0:110#1,2 (2|3-559)+ 0?", "((0)*)*", "0||0", "1-0:0:0", "0*+?*+"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := ParseSequence(in)
		if err != nil {
			return
		}
		again, err := ParseSequence(s.String())
		if err != nil || again.Allows(threeASes) != s.Allows(threeASes) {
			t.Fatalf("%q reads back as %q: %v", in, s, err)
		}
	})
}

func TestACL(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want bool
	}{
		{"", true}, {"+", true}, {"-", false}, {"+ 0", true}, {"- 0-0#0", false},
		{"- 1-ff00:0:111 +", false}, {"- 1-ff00:0:112 +", true}, {"- 3 +", true}, {"- 2 +", false},
		{"+ 1 + 2 -", true}, {"+ 1 -", false}, {"+ 1-ff00:0:111 - 1 +", false}, {"+ 1-ff00:0:110 + 1-ff00:0:111 - 1 +", true},
		{"- 1-ff00:0:111#2 +", false}, {"- 1-ff00:0:111#4 +", true},
		{"- 1-ff00:0:111#3,0 +", false}, // 0 out: any egress
		{"- 1-ff00:0:111#2,+", false}, {"- 1-ff00:0:112 , - 1-ff00:0:111#2,9,+", false}, {"+ 1,+ 2,-", true}, {"- 1-ff00:0:111#3,2,+", true},
		{"- 1-ff00:0:111#3,2 +", true}, {"- 1-ff00:0:111#2,9 +", false}, {"- 0-559#4 +", false},
	} {
		acl, err := ParseACL(tt.in)
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
			continue
		}
		if got := acl.Allows(threeASes); got != tt.want {
			t.Errorf("%q: %v, want %v", tt.in, got, tt.want)
		}
		if again, err := ParseACL(acl.String()); err != nil || again.String() != acl.String() {
			t.Errorf("%q reads back as %q: %v", tt.in, acl, err)
		}
	}
	for _, in := range []string{
		"+ 1", "- + 1", "* 0", "+ 0 0", "+ 1-0#1 -", "+ 1-1#1,2,3 -", "+ 1-1-1 -", "+ 1#2 -", "+ 70000 -", "+ 1-1#e -", "1 -", "- 1,2 +", ",", "+,", ",+", "- 1-1#1,,+", strings.Repeat("+ 1 ", 2000),
	} {
		if acl, err := ParseACL(in); err == nil {
			t.Errorf("%.20q was accepted as %v", in, acl)
		}
	}
}

func FuzzParseACL(f *testing.F) {
	for _, s := range []string{"- 1-ff00:0:110#2 +", "+ 1 -", "+", "- 0-559#1,2 + 0-0#0", "- 1,- 2-559#1,2,+"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		acl, err := ParseACL(in)
		if err != nil {
			return
		}
		again, err := ParseACL(acl.String())
		if err != nil || again.String() != acl.String() || again.Allows(threeASes) != acl.Allows(threeASes) {
			t.Fatalf("%q reads back as %q: %v", in, acl, err)
		}
	})
}

func TestPolicy(t *testing.T) {
	paths := []Path{
		{Fingerprint: "a", MTU: 1400, Latency: 30 * time.Millisecond, LatencyKnown: true, Bandwidth: 10e6, Interfaces: ifs("1-1#1", "1-2#1")},
		{Fingerprint: "b", MTU: 9000, Latency: 10 * time.Millisecond, LatencyKnown: true, Interfaces: ifs("1-1#2", "1-3#1", "1-3#2", "1-2#2")},
		{Fingerprint: "c", MTU: 1200, Latency: 50 * time.Millisecond, Bandwidth: 50e6, Interfaces: ifs("1-1#3", "1-2#3")},
	}
	acl, err := ParseACL("- 1-3 +")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name       string
		preference string
		policy     Policy
		want       string
	}{
		{"nothing", "", Policy{}, "abc"},
		{"latency, partly known last", "latency", Policy{}, "bac"},
		{"bandwidth, unknown last", "bandwidth", Policy{}, "cab"},
		{"hops keep the lookup's order", "hops", Policy{}, "acb"},
		{"hops then mtu", "hops, mtu", Policy{}, "acb"},
		{"mtu", "mtu", Policy{}, "bac"},
		{"maximum latency", "", Policy{MaxLatency: 30 * time.Millisecond}, "ab"},
		{"minimum MTU", "", Policy{MinMTU: 1280}, "ab"},
		{"acl", "", Policy{ACL: acl}, "ac"},
		{"choice", "mtu", Policy{Chosen: map[IA][]Fingerprint{0: {"c", "b"}}}, "bc"},
		{"choice for another destination", "", Policy{Chosen: map[IA][]Fingerprint{1: {"c"}}}, "abc"},
		{"nothing is left", "", Policy{MinMTU: 9001}, ""},
	} {
		tt.policy.Preference, err = ParsePreference(tt.preference)
		if err != nil {
			t.Fatal(err)
		}
		before := slices.Clone(paths)
		allowed, refused := tt.policy.Apply(paths)
		var got string
		for _, p := range allowed {
			got += string(p.Fingerprint)
		}
		if got != tt.want || len(allowed)+len(refused) != len(paths) {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		for _, r := range refused {
			if r.Reason == "" || r.Clause == "" {
				t.Errorf("%s: refused without a reason", tt.name)
			}
		}
		for i := range paths {
			if paths[i].Fingerprint != before[i].Fingerprint {
				t.Errorf("%s: the input was reordered", tt.name)
			}
		}
	}
	for _, in := range []string{"speed", "latency,latency", "latency,", ",", "mtu,hops,latency,bandwidth,mtu,mtu,mtu"} {
		if _, err := ParsePreference(in); err == nil {
			t.Errorf("preference %q was accepted", in)
		}
	}
}

func TestSummary(t *testing.T) {
	acl, err := ParseACL("- 1-3 +")
	if err != nil {
		t.Fatal(err)
	}
	paths := []Path{
		{Fingerprint: "a", MTU: 1400, Latency: time.Second, Interfaces: ifs("1-1#1", "1-2#1")},
		{Fingerprint: "b", MTU: 9000, Interfaces: ifs("1-1#2", "1-3#1", "1-3#2", "1-2#2")},
		{Fingerprint: "c", MTU: 1200, Interfaces: ifs("1-1#3", "1-2#3")},
		{Fingerprint: "d", MTU: 1300, Interfaces: ifs("1-1#4", "1-2#4")},
	}
	p := Policy{ACL: acl, MaxLatency: time.Millisecond, MinMTU: 1350}
	allowed, refused := p.Apply(paths)
	want := `1 by acl (denied by the ACL "- 1-3#0 +"), 1 by max-latency (announced latency of 1s exceeds 1ms), 2 by min-mtu (MTU of 1200 is below 1350)`
	if got := Summary(refused); got != want || len(allowed) != 0 {
		t.Errorf("%d allowed; %s\nwant %s", len(allowed), got, want)
	}
	if Summary(nil) != "" {
		t.Error("something is said of nothing")
	}
	if n := (Policy{MaxLatency: 1}).Unjudged(paths); n != 4 {
		t.Errorf("%d paths could not be judged, want 4", n)
	}
	p = Policy{Chosen: map[IA][]Fingerprint{0: {"d", "x"}}}
	if m := p.Missing(0, paths); !slices.Equal(m, []Fingerprint{"x"}) || p.IsZero() || !(Policy{}).IsZero() {
		t.Errorf("missing: %v", m)
	}
}

func TestPattern(t *testing.T) {
	for in, want := range map[string]bool{
		"0": true, "1": true, "2": true, "3": false, "0-559": true, "1-ff00:0:111": true, "1-ff00:0:112": false, "1-ff00:0:111#3": true,
		"1-ff00:0:111#4": false, " 1-ff00:0:111#2,3 ": true, "1-ff00:0:111#3,2": false, "0-0#0": true,
	} {
		p, err := ParsePattern(in)
		if err != nil || p.Matches(threeASes) != want || p.Matches(Path{Src: 1<<48 | 1, Dst: 1<<48 | 1}) {
			t.Errorf("%q: %v, want %v; %v", in, !want, want, err)
		}
		if again, err := ParsePattern(p.String()); err != nil || again != p {
			t.Errorf("%q reads back as %q: %v", in, p, err)
		}
	}
	for _, in := range []string{"", "x", "+ 1", "1-", "1#2", "0#3", "0-0#3", "1-ff00:0:110#1,2,3"} {
		if p, err := ParsePattern(in); err == nil {
			t.Errorf("%q is read as %v", in, p)
		}
	}
}

func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"1", "1-ff00:0:110", "1-ff00:0:110#2", "0", "0-559#1,2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		p, err := ParsePattern(in)
		if err != nil {
			return
		}
		if again, err := ParsePattern(p.String()); err != nil || again != p {
			t.Fatalf("%q reads back as %q: %v", in, p, err)
		}
	})
}
