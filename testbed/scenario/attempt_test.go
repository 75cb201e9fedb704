package scenario

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/testbed"
	"braid/testbed/bench"
	"braid/testbed/linkemu"
)

// A competing flow that breaks is a result of the run, like a peer that fails.
func TestBrokenFlow(t *testing.T) {
	a := &attempt{
		Scenario: Scenario{Lasts: Duration(time.Millisecond), Timeout: Duration(time.Minute)},
		fixtures: &fixtures{network: &testbed.Network{}}, dir: t.TempDir(),
		done:  make(chan struct{}),
		flows: []*flow{{Traffic: Traffic{Name: "rival"}, stop: func() {}, err: errors.New("idle for too long")}},
	}
	res, err := a.run(context.Background())
	if err != nil || !strings.Contains(res.Failed, "idle for too long") {
		t.Errorf("the result %+v, %v", res, err)
	}
}

// A run begins when all routers see their links as the scenario has set them. A link may be down.
func TestIsNoticed(t *testing.T) {
	for _, tt := range []struct {
		state  string
		config linkemu.Config
		want   bool
	}{
		{"up", linkemu.Config{}, true}, {"down", linkemu.Config{}, false}, {"unknown", linkemu.Config{}, false},
		{"up", linkemu.Config{Down: true}, false}, {"down", linkemu.Config{Down: true}, true}, {"unknown", linkemu.Config{Down: true}, false},
		{"down", linkemu.Config{Loss: 1}, true}, {"up", linkemu.Config{Loss: .5}, true},
		{"unwatched", linkemu.Config{}, true}, {"unwatched", linkemu.Config{Down: true}, true},
	} {
		if got := isNoticed(testbed.LinkEndStatus{State: tt.state, Config: tt.config}); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// A flow without a file ends a little before its last byte. It has not received that byte.
func TestFetchedOf(t *testing.T) {
	for _, tt := range []struct {
		payload        int64
		done, withFile bool
		want           int64
	}{
		{600, false, true, 600}, {1000, false, true, 999}, {990, true, true, 1000}, {1200, true, true, 1000},
		{600, false, false, 600}, {996, true, false, 996}, {1200, true, false, 1000},
	} {
		if got := fetchedOf(tt.payload, 1000, tt.done, tt.withFile); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// The hosts of competing flows end with their run. What they have learned of a path in one run would
// change the start of the flows in the next one.
func TestHostsEndWithTheirRun(t *testing.T) {
	dir := t.TempDir()
	if err := bench.OneAS(dir, 1400); err != nil {
		t.Fatal(err)
	}
	host, err := scionnet.Open(t.Context(), scionnet.Config{ConfigDir: dir, LocalIP: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	h := &fixtures{scratch: dir, hosts: map[pathsel.IA]*scionnet.Host{home: host}}
	lost := Scenario{data: filepath.Join(dir, "missing"), Traffic: []Traffic{{Name: "rival"}}}
	if _, err := h.run(t.Context(), turn{Scenario: lost}, 1, dir, Options{}); err == nil || len(h.hosts) > 0 {
		t.Errorf("%d hosts are left after a run that ended with %v", len(h.hosts), err)
	}
}

// Events happen on time, also while the run waits for a peer that is starting.
func TestEventWhileAPeerStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a, starting := &attempt{zero: time.Now()}, &process{}
		a.at(When{After: 100 * time.Millisecond}, 0, func() error { starting.ready = true; return nil })
		if err := a.awaitReady(ctx, starting); err != nil {
			t.Error(err)
		}
	})
}

// A leecher that waits for a part of the data fails the run once nobody downloads any more.
func TestPartThatNobodyReaches(t *testing.T) {
	s, err := parseText(`
about: the second leecher waits for more than the first one wants
topology: two-paths
size: 100kB
peers:
  - {name: seeder, as: "1-ff00:0:110", role: seed}
  - {name: first, as: "1-ff00:0:111", role: leech}
  - {name: second, as: "1-ff00:0:111", role: leech, start: 60%}
`)
	if err != nil {
		t.Fatal(err)
	}
	first := &process{peer: s.Peers[1]}
	a := &attempt{Scenario: s, writer: &sampleWriter{fold: newFold(s)}, peers: []*process{first}}
	fetched := a.writer.fold.leechers["first"].fetched
	for _, c := range []struct {
		fetched     float64
		done, ended bool
		stuck       string
	}{
		{fetched: 0},
		{fetched: 50e3},
		{fetched: 100e3, done: true, stuck: "peer second starts at 60% of the data, but the other leechers have ended at 50%"},
		{fetched: 40e3, ended: true, stuck: "peer second starts at 60% of the data, but the other leechers have ended at 20%"},
		{fetched: 130e3, ended: true}, // second is starting
	} {
		fetched["torrent"], first.done, first.ended = c.fetched, c.done, c.ended
		got := ""
		if err := a.stuck(); err != nil {
			got = err.Error()
		}
		if got != c.stuck {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
