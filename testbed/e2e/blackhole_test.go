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

// One of two links begins to drop everything, and nobody says so. Its path is taken out, the other one goes on, and
// when the link works again the path is back by itself.
func TestBlackHole(t *testing.T) {
	s := startSwarm(t, startNetwork(t, "two-paths", testbed.Options{NoBFD: true}), 64<<20)
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
		atCut := before
		watch := func() {
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
		t.Logf("noticed after %v", time.Since(start).Round(time.Millisecond))
		atDead, atAlive := read(dead), read(alive)
		eventually(t, "the other path going on", func() bool { watch(); return read(alive) > atAlive+4<<20 })
		if n := read(dead); n != atDead {
			t.Errorf("%d bytes came over the dead path", n-atDead)
		}
		t.Logf("%.1f Mbit/s on the other path since the cut, longest gap %v", float64(read(alive)-atCut)*8/1e6/time.Since(start).Seconds(), longest.Round(time.Millisecond))
		set(false)
		eventually(t, "the path back", func() bool { return read(dead) > atDead+1<<20 })
	})
	t.Logf("%.1f s for 64 MiB", p.Since.Seconds())
	for _, x := range p.Paths {
		if x.Path.Fingerprint != dead && x.Failures > 0 {
			// Not an error here: a machine that stops for a second makes any path silent.
			t.Logf("the other path failed as well: %v", x.Err)
		}
	}
}
