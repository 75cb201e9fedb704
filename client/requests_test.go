package client

import (
	"path/filepath"
	"testing"
	"time"
)

// No more requests are under way than the user allows, whatever the peer takes.
func TestMaxRequests(t *testing.T) {
	const most = 2
	data, out := t.TempDir(), t.TempDir()
	writeRandom(t, filepath.Join(data, "file"), 4<<20)
	src := makeTorrent(t, filepath.Join(data, "file"), CreateOptions{}).Source
	seeder := seed(t, src, data)
	s := openSession(t, Config{MaxRequests: most, Limits: Limits{Download: 40e6}}) // long enough to be looked at
	store := openStore(t, out)
	tr, err := s.Add(src, store, Options{Peers: seeder.Listening()})
	if err != nil {
		t.Fatal(err)
	}
	looks := 0
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for done := tr.Done(); done != nil; {
		select {
		case <-done:
			done = nil
		case <-tick.C:
			s.gauges.byPeer.Range(func(_, g any) bool {
				looks++
				if n := g.(*gauge).outstanding.Load(); n > most {
					t.Errorf("%d requests under way", n)
				}
				return true
			})
		}
	}
	wait(t, tr)
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, src, data, out)
	if looks == 0 {
		t.Error("nothing was looked at")
	}
}
