package e2e

import (
	"strings"
	"testing"

	"braid/client"
	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/linkemu"
	"braid/units/await"
)

// One of two links begins to drop everything, and no router reports it. Its path fails because it is
// silent, and the other one goes on. When the link works again, the path is back by itself.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	s := startSwarm(t, startNetwork(t, "two-paths", testbed.Options{BFD: testbed.NoBFD}), 16<<20)
	paths := s.bothPaths(t)
	dead, alive := paths[0].Fingerprint, paths[1].Fingerprint
	set := func(path pathsel.Path, change func(*linkemu.Config)) {
		if err := s.network.SetLink(path.Interfaces[0], change); err != nil {
			t.Fatal(err)
		}
	}
	// A path alone takes more than a minute, so that the download does not end before the test.
	for _, p := range paths {
		set(p, func(c *linkemu.Config) { c.Rate = 2e6 })
	}
	failed := make(chan client.PathEvent, 1)
	decided := client.Options{Decided: func(e client.PathEvent) {
		if e.Name == "path-failed" && e.Key.Path == dead {
			select {
			case failed <- e:
			default:
			}
		}
	}}
	s.downloadWith(t, s.torrent.Source, "adaptive", decided, func(tr *client.Transfer) {
		read := func(f pathsel.Fingerprint) (n uint64) {
			for _, x := range tr.Progress().Paths {
				if x.Path.Fingerprint == f {
					n += x.BytesRead
				}
			}
			return n
		}
		carries := func(what string, f pathsel.Fingerprint) {
			before := read(f)
			await.True(t, what, func() bool { return read(f) > before+256<<10 })
		}
		carries("data over the path that will fail", dead)
		carries("data over the other path", alive)
		select {
		case e := <-failed:
			t.Logf("before the cut: %s", e.Reason) // a router got no processor
		default:
		}
		set(paths[0], func(c *linkemu.Config) { c.Down = true })
		if e := await.Value(t, "the failure of the path", failed); !strings.Contains(e.Reason, "silent") {
			t.Errorf("the path failed: %s", e.Reason)
		}
		atDead := read(dead)
		carries("data over the other path after the cut", alive)
		if n := read(dead); n != atDead {
			t.Errorf("%d bytes came over the dead path", n-atDead)
		}
		set(paths[0], func(c *linkemu.Config) { c.Down = false })
		carries("data over the path again", dead)
		for _, p := range paths {
			set(p, func(c *linkemu.Config) { c.Rate = 0 })
		}
	})
}
