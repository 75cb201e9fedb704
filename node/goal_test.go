package node

import (
	"errors"
	"testing"
	"time"

	"braid/client"
	"braid/units/await"
)

func TestGoal(t *testing.T) {
	for _, tt := range []struct {
		goal   Goal
		sent   int64
		served time.Duration
		want   string
	}{
		{Goal{}, 1 << 40, 1 << 60, ""},
		{Goal{Ratio: 1.5}, 1499, time.Hour, ""},
		{Goal{Ratio: 1.5}, 1500, 0, "ratio 1.50 is reached"},
		{Goal{Time: time.Hour}, 1 << 40, time.Hour - 1, ""},
		{Goal{Time: time.Hour}, 0, time.Hour, "served for 1h0m0s"},
		{Goal{Ratio: 2, Time: time.Hour}, 0, time.Hour, "served for 1h0m0s"},
		{Goal{Ratio: 2, Time: time.Hour}, 2000, 0, "ratio 2.00 is reached"},
		{Goal{Idle: 2 * time.Hour}, 0, time.Hour, ""},
		{Goal{Idle: time.Hour}, 0, time.Hour, "nothing was sent for 1h0m0s"},
		{Goal{Ratio: -1, Time: -1, Idle: -1}, 1 << 40, time.Hour, ""},
	} {
		if got := tt.goal.reached(client.Progress{Total: 1000, Sent: tt.sent}, tt.served, tt.served); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
	if got := (Goal{Ratio: 1, Time: 1}).reached(client.Progress{Err: errors.New("lost")}, time.Hour, 0); got != "" {
		t.Errorf("failed: %q", got)
	}
	own, node := Goal{Ratio: -1, Time: time.Hour}, Goal{Ratio: 2, Time: 1, Idle: 1}
	if got := own.Or(node); got != (Goal{Ratio: -1, Time: time.Hour, Idle: 1}) {
		t.Errorf("with the node's goal: %+v", got)
	}
}

func TestDelivers(t *testing.T) {
	wants, has := client.PeerProgress{PeerInterested: true}, client.PeerProgress{}
	for _, tt := range []struct {
		peers  []client.PeerProgress
		beyond int64
		idle   time.Duration
		want   bool
	}{
		{nil, 0, 0, false},
		{[]client.PeerProgress{has}, 0, 0, false},
		{[]client.PeerProgress{has, wants}, 0, 0, true},
		{[]client.PeerProgress{wants}, 0, deliverTime - 1, true},
		{[]client.PeerProgress{wants}, 0, deliverTime, false},
		{[]client.PeerProgress{wants}, 1, 0, false},
	} {
		if got := delivers(tt.peers, tt.beyond, tt.idle); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// A torrent that an earlier process has served can be started again, and is served again.
func TestServedAfterRestart(t *testing.T) {
	t.Parallel()
	data, state := t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1<<20)
	n := openService(t, state, data)
	x := add(t, n, Options{Source: src, Goal: Goal{Time: time.Millisecond}})
	await.Value(t, "the goal", x.Ended())
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = openService(t, state, data)
	x = torrent(t, n, src)
	if p := x.Progress(); x.State() != Served || p.Phase != client.Complete || !isClosed(x.Ended()) || !isClosed(x.Done()) {
		t.Fatalf("it is %s, %+v", x.State(), p)
	}
	if err := x.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the second goal", func() bool { return x.State() == Served })
	await.Value(t, "its end", x.Ended())
}

// A torrent that is not served any longer has no peers, also if it has ended in the middle of a
// peer's download.
func TestServedHasNoPeers(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	src := create(t, data, "file", 1<<20)
	n := openService(t, t.TempDir(), data)
	seed := add(t, n, Options{Source: src, Goal: Goal{Ratio: 0.1}})
	await.Value(t, "the data", seed.Done())
	slow := open(t, Config{Client: client.Config{Limits: client.Limits{Download: 1e6}}})
	add(t, slow, Options{Source: src, Storage: fileIn(t.TempDir()), Peers: n.Listening()})
	await.Value(t, "the goal", seed.Ended())
	if s := seed.Status(); s.State != Served || s.Peers != 0 || s.Paths != 0 || s.Getting != 0 {
		t.Errorf("it is %s, with %d peers, %d paths, and gives to %d", s.State, s.Peers, s.Paths, s.Getting)
	}
}

// The time for which an earlier process has served a torrent counts.
func TestServedInEarlierProcess(t *testing.T) {
	t.Parallel()
	data, state := t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1000)
	n := openService(t, state, data)
	x := add(t, n, Options{Source: src, Goal: Goal{Time: time.Hour}})
	await.Value(t, "the data", x.Done())
	served := savedCounters{Torrents: map[string]counters{x.InfoHash(): {Seeding: time.Hour}}}
	if err := errors.Join(n.Close(), n.write(countersFile, served)); err != nil {
		t.Fatal(err)
	}
	x = torrent(t, openService(t, state, data), src)
	await.Value(t, "the goal", x.Ended())
}
