package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"braid/client"
	"braid/pathsel"
	"braid/scionnet"
	"braid/testbed"
	"braid/testbed/linkemu"
)

// One of two links begins to drop everything, and no router reports it. Its path is taken out
// within three seconds, the other one goes on without a gap and does not fail, and when the link
// works again the path is back by itself.
//
// Any path is silent while a router or this test gets no processor. If the experiment fails and
// that has happened, it is repeated.
func TestBlackHole(t *testing.T) {
	s := startSwarm(t, startNetwork(t, "two-paths", testbed.Options{BFD: testbed.NoBFD}), 64<<20)
	for began := time.Now(); ; {
		wrong, stopped := s.blackHole(t, s.bothPaths(t))
		if len(wrong) == 0 {
			return
		}
		said := strings.Join(wrong, "; ")
		if stopped < 500*time.Millisecond || time.Since(began) > patience {
			t.Fatalf("%s; the machine stopped for up to %v", said, stopped)
		}
		t.Logf("again, since the machine stopped for %v: %s", stopped, said)
	}
}

// blackHole makes the experiment once. It returns what was wrong, and the longest time in which the
// living path answered no probe: its routers or this test did not run.
func (s swarm) blackHole(t *testing.T, paths []pathsel.Path) (wrong []string, stopped time.Duration) {
	dead, alive := paths[0].Fingerprint, paths[1].Fingerprint
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	set := func(down bool) {
		if err := s.network.SetLink(paths[0].Interfaces[0], func(c *linkemu.Config) { c.Down = down }); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answered := time.Now()
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			short, stop := context.WithTimeout(ctx, 200*time.Millisecond)
			probes, err := s.leecher.Probe(short, paths[1].Dst, netip.Addr{}, paths[1:])
			stop()
			if err == nil && probes[0].Status == scionnet.PathAlive {
				stopped, answered = max(stopped, time.Since(answered)), time.Now()
			}
		}
		stopped = max(stopped, time.Since(answered))
	})

	events := make(chan client.PathEvent, 1000)
	decided := client.Options{Decided: func(e client.PathEvent) { events <- e }}
	p := s.downloadWith(t, s.torrent.Source, "adaptive", decided, func(tr *client.Transfer) {
		read := func(f pathsel.Fingerprint) (n uint64) {
			for _, x := range tr.Progress().Paths {
				if x.Path.Fingerprint == f {
					n += x.BytesRead
				}
			}
			return n
		}
		until := func(what string, f func() bool) {
			happened := false
			eventually(t, what, func() bool {
				happened = f()
				return happened || tr.Progress().Phase == client.Complete
			})
			if !happened {
				complain("the download ended before %s", what)
			}
		}
		// A path counts as silent after some round trips. They are long for a while after a stop.
		atWork := func(x client.PathProgress) bool {
			return x.BytesRead > 4<<20 && time.Since(x.LastRead) < 200*time.Millisecond && x.RTT+4*x.RTTVar < 400*time.Millisecond
		}
		until("both paths were at work", func() bool {
			ps := tr.Progress().Paths
			return len(ps) == 2 && atWork(ps[0]) && atWork(ps[1])
		})
		for len(events) > 0 {
			<-events // from before the cut
		}
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
		until("the silence was noticed", func() bool {
			watch()
			select {
			case e := <-events:
				return e.Name == "path-failed" && e.Key.Path == dead && strings.Contains(e.Reason, "silent")
			default:
				return false
			}
		})
		if noticed := time.Since(start); noticed > 3*time.Second {
			complain("the silence was noticed after %v", noticed)
		}
		atDead, atAlive := read(dead), read(alive)
		until("the other path went on", func() bool { watch(); return read(alive) > atAlive+4<<20 })
		if n := read(dead); n != atDead {
			complain("%d bytes came over the dead path", n-atDead)
		}
		if longest > time.Second {
			complain("nothing came over the other path for %v", longest)
		}
		// The link carries 20 Mbit/s.
		if mbit := float64(read(alive)-atCut) * 8 / 1e6 / time.Since(start).Seconds(); mbit < 5 {
			complain("%.1f Mbit/s on the other path since the cut", mbit)
		}
		set(false)
		until("the path was back", func() bool { return read(dead) > atDead+1<<20 })
	})
	for _, x := range p.Paths {
		if x.Path.Fingerprint != dead && x.Failures > 0 {
			complain("the other path failed as well: %v", x.Err)
		}
	}
	cancel()
	asking.Wait()
	return wrong, stopped
}
