package demo

import (
	"strings"
	"testing"

	"braid/node/event"
	"braid/testbed"
)

func TestLoad(t *testing.T) {
	for _, name := range []string{"two-paths", "diamond", "default"} {
		topology, err := testbed.ShippedTopology(name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := load(topology)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Peers) != 2 || s.Peers[0].AS != topology.ASes[0].IA || s.Peers[1].AS != topology.ASes[1].IA || len(s.Variants) != 2 || !s.Tracker {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestShowsProgress(t *testing.T) {
	e := event.Progress{Bytes: 50, Total: 200, MbitS: 30.04, Paths: []event.Path{
		{Fingerprint: "0123456789", BytesRead: 30, MbitS: 20, RTT: 25.4},
		{Fingerprint: "abcdef0123", BytesRead: 10, MbitS: 10, RTT: 30},
		{Fingerprint: "ffff"},
	}}
	want := "[##--------]  25%  30.0 Mbit/s  01234567 20.0 25 ms  abcdef01 10.0 30 ms"
	if got := progressLine(e); got != want || len(got) > 80-len("      ") {
		t.Errorf("%q\nwant %q", got, want)
	}
	if s := progressLine(event.Progress{}); !strings.Contains(s, "  0%") {
		t.Errorf("of nothing: %q", s)
	}
	accepted := event.Path{Fingerprint: e.Paths[0].Fingerprint, BytesRead: 20, Accepted: true}
	e.Paths[0].BytesRead -= accepted.BytesRead
	share := shares(append(e.Paths, accepted))
	if len(share) != 2 || share[0].Share != 0.75 || share[1].Share != 0.25 {
		t.Fatalf("shares %+v", share)
	}
	r := Result{Bytes: 2e6, Files: 3, LimitMbitS: 40, Candidates: []Candidate{
		{Name: "single", Seconds: 2, PayloadMbitS: 18, Verified: true, Paths: share[:1]},
		{Name: "multi", Seconds: 1, PayloadMbitS: 36, Verified: true, Paths: share},
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
