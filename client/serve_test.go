package client

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// With one slot one of two leechers is served, the other when the first is done; both get
// everything.
func TestMaxUploads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var net pipes
		src, peers, dir, limit := limitedSeedOver(t, net.host(), Config{MaxUploads: 1}, 8<<20, 2<<20)
		var transfers []*Transfer
		var outs []string
		for range 2 {
			out := t.TempDir()
			store := openStore(t, out)
			tr, err := sessionOver(t, Config{}, net.host()).Add(src, store, Options{Peers: peers})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			transfers, outs = append(transfers, tr), append(outs, out)
		}
		var have [2]int64
		simulateUntil(t, transfers[0], func(Progress) bool {
			have[0], have[1] = transfers[0].Progress().Fetched, transfers[1].Progress().Fetched
			return max(have[0], have[1]) > 2<<20
		})
		if min(have[0], have[1]) > 256<<10 { // there may be some before the first look at who is there
			t.Errorf("both were served: %d and %d bytes", have[0], have[1])
		}
		first, second := 0, 1
		if have[1] > have[0] {
			first, second = 1, 0
		}
		limit.SetLimit(rate.Inf)
		simulateWait(t, transfers[first])
		simulateWait(t, transfers[second])
		for i, tr := range transfers {
			tr.Close()
			sameFiles(t, src, dir, outs[i])
		}
	})
}

// A peer serves us if it sends payload. Its requests and its news of pieces do not count: otherwise
// the peers that we serve would keep their slots for good.
func TestReceivedIsPayload(t *testing.T) {
	fake := &fakeTorrent{}
	l := acceptedLink(t, fakeConn{fake})
	r := &row{peer: l.Peer(), accepted: true, link: l}
	s := server{core: &core{common: &common{}, peers: peerSet{accepted: []*row{r}}}}

	r.past.read = 1 << 20 // of messages
	r.measure(time.Second)
	if v, _ := s.view(); r.in.rate == 0 || v.Received[l.Peer().ID()] != 0 {
		t.Errorf("received %v without payload", v.Received)
	}
	fake.stats.BytesReadUsefulData.Add(1 << 20)
	r.measure(time.Second)
	if v, _ := s.view(); v.Received[l.Peer().ID()] == 0 {
		t.Errorf("received %v with payload", v.Received)
	}
}
