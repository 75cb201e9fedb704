package e2e

import (
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/linkemu"
)

// One of two links begins to drop everything, and no router reports it. Its path is taken out
// within three seconds, the other one goes on without a gap and does not fail, and when the link
// works again the path is back by itself. A machine that stops makes any path silent, so the
// longest stop is added to all times.
func TestBlackHole(t *testing.T) {
	s := startSwarm(t, startNetwork(t, "two-paths", testbed.Options{BFD: testbed.NoBFD}), 64<<20)
	paths, err := s.leecher.Paths(t.Context(), ia(t, "1-ff00:0:110"))
	if err != nil || len(paths) != 2 {
		t.Fatalf("%d paths, %v", len(paths), err)
	}
	dead, alive := paths[0].Fingerprint, paths[1].Fingerprint
	set := func(down bool) {
		if err := s.network.SetLink(paths[0].Interfaces[0], func(c *linkemu.Config) { c.Down = down }); err != nil {
			t.Fatal(err)
		}
	}
	var stopped time.Duration // the longest time in which this test did not run although it should have
	events := make(chan client.PathEvent, 1000)
	p := s.downloadWith(t, s.torrent.Source, "adaptive", client.Options{Decided: func(e client.PathEvent) { events <- e }}, func(tr *client.Transfer) {
		read := func(f pathsel.Fingerprint) (n uint64) {
			for _, x := range tr.Progress().Paths {
				if x.Path.Fingerprint == f {
					n += x.BytesRead
				}
			}
			return n
		}
		eventually(t, "both paths at work", func() bool { return read(dead) > 4<<20 && read(alive) > 4<<20 })
		var longest time.Duration // without a byte on the path that is left
		last, before := time.Now(), read(alive)
		atCut, watched := before, last
		watch := func() {
			stopped = max(stopped, time.Since(watched)-pollInterval)
			watched = time.Now()
			if n := read(alive); n > before {
				longest, before, last = max(longest, time.Since(last)), n, time.Now()
			}
		}
		set(true)
		start := time.Now()
		eventually(t, "the silence noticed", func() bool {
			watch()
			select {
			case e := <-events:
				return e.Name == "path-failed" && e.Key.Path == dead && strings.Contains(e.Reason, "silent")
			default:
				return false
			}
		})
		if noticed := time.Since(start); noticed > 3*time.Second+stopped {
			t.Errorf("the silence was noticed after %v; this test stopped for up to %v", noticed, stopped)
		}
		atDead, atAlive := read(dead), read(alive)
		eventually(t, "the other path going on", func() bool { watch(); return read(alive) > atAlive+4<<20 })
		if n := read(dead); n != atDead {
			t.Errorf("%d bytes came over the dead path", n-atDead)
		}
		if longest > time.Second+stopped {
			t.Errorf("nothing came over the other path for %v; this test stopped for up to %v", longest, stopped)
		}
		// The link carries 20 Mbit/s.
		if mbit := float64(read(alive)-atCut) * 8 / 1e6 / time.Since(start).Seconds(); mbit < 5 {
			t.Errorf("%.1f Mbit/s on the other path since the cut", mbit)
		}
		set(false)
		eventually(t, "the path back", func() bool { return read(dead) > atDead+1<<20 })
	})
	for _, x := range p.Paths {
		if x.Path.Fingerprint != dead && x.Failures > 0 && stopped < 500*time.Millisecond {
			t.Errorf("the other path failed as well: %v; this test stopped for up to %v", x.Err, stopped)
		}
	}
}
