package client

import (
	"path/filepath"
	"testing"
	"testing/synctest"

	"braid/storage"
)

// No more requests are under way than the user allows, whatever the peer takes.
func TestMaxRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 2
		data := t.TempDir()
		writeRandom(t, filepath.Join(data, "file"), 1<<20)
		src := makeTorrent(t, filepath.Join(data, "file"), CreateOptions{}).Source
		var net pipes
		seeder := sessionOver(t, Config{}, net.host())
		if _, err := seeder.Add(src, storage.OpenVerified(data, testLog(t)), Options{}); err != nil {
			t.Fatal(err)
		}
		s := sessionOver(t, Config{MaxRequests: most, Limits: Limits{Download: 40e6}}, net.host())
		store := openStore(t, t.TempDir())
		t.Cleanup(func() { store.Close() })
		tr, err := s.Add(src, store, Options{Peers: seeder.Listening()})
		if err != nil {
			t.Fatal(err)
		}
		looks, under := 0, 0
		simulateUntil(t, tr, func(p Progress) bool {
			s.gauges.byPeer.Range(func(_, g any) bool {
				looks++
				n := int(g.(*gauge).outstanding.Load())
				if under += n; n > most {
					t.Errorf("%d requests under way", n)
				}
				return true
			})
			return p.Done == p.Pieces && p.Pieces > 0
		})
		if looks < 10 || under == 0 {
			t.Errorf("%d looks, %d requests seen", looks, under)
		}
	})
}
