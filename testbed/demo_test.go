package testbed

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"braid/pathsel"
	"braid/testbed/linkemu"
)

func TestPayloadLimit(t *testing.T) {
	topo := impliedTopo(t, []string{"1-1", "1-2"}, [][3]string{
		{"1-1#1", "1-2#1", "CORE"}, {"1-1#2", "1-2#2", "CORE"}, {"1-1#3", "1-2#3", "CORE"}})
	topo.Links[0].Config = linkemu.Config{Rate: 20e6}
	topo.Links[1].Config = linkemu.Config{Rate: 10e6}
	path := func(s ...string) pathsel.Path {
		ifs := interfacesOf(t, s...)
		return pathsel.Path{Interfaces: ifs, Fingerprint: pathsel.FingerprintOf(ifs), MTU: 1472}
	}
	one, two, free := path("1-1#1", "1-2#1"), path("1-1#2", "1-2#2"), path("1-1#3", "1-2#3")
	share := PayloadShare(1472, 48+8+24)
	for _, tt := range []struct {
		name  string
		paths []pathsel.Path
		want  float64 // 0: an error
	}{
		{"one", []pathsel.Path{one}, 20 * share},
		{"disjoint", []pathsel.Path{one, two}, 30 * share},
		{"shared", []pathsel.Path{one, one}, 0},
		{"without a rate", []pathsel.Path{one, free}, 0},
	} {
		got, err := payloadLimit(topo, tt.paths)
		if (err != nil) != (tt.want == 0) || math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

func TestDemoShowsWhereItIs(t *testing.T) {
	var e downloadEvent
	err := json.Unmarshal([]byte(`{"event":"progress","bytes":50,"total":200,"mbit_s":30.04,"paths":[
		{"fingerprint":"0123456789","bytes_read":30,"mbit_s":20,"rtt_ms":25.4},
		{"fingerprint":"abcdef0123","bytes_read":10,"mbit_s":10,"rtt_ms":30},
		{"fingerprint":"ffff","bytes_read":0,"mbit_s":0,"rtt_ms":0}]}`), &e)
	if err != nil {
		t.Fatal(err)
	}
	want := "[######------------------]  25%  30.0 Mbit/s   01234567 20.0 Mbit/s  25 ms   abcdef01 10.0 Mbit/s  30 ms   ffff  0.0 Mbit/s   0 ms"
	if got := e.String(); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	if s := e.shares(); len(s) != 2 || s[0].Share != 0.75 || s[1].Share != 0.25 {
		t.Errorf("shares %+v", s)
	}
	if s := (downloadEvent{}).String(); !strings.Contains(s, "  0%") {
		t.Errorf("of nothing: %q", s)
	}
	r := DemoResult{Bytes: 2e6, Files: 3, LimitMbitS: 40, Candidates: []Candidate{
		{Name: "single", Seconds: 2, PayloadMbitS: 18, Verified: true, Paths: e.shares()[:1]},
		{Name: "multi", Seconds: 1, PayloadMbitS: 36, Verified: true, Paths: e.shares()},
	}}
	var b strings.Builder
	if err := r.Table(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"multi", "2.00", "90.0%", "01234567 75%, abcdef01 25%", "40.0 Mbit/s"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
