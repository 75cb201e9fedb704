package client

import (
	"testing"

	"golang.org/x/time/rate"
)

// With one slot one of two leechers is served, the other when the first is done; both get
// everything.
func TestMaxUploads(t *testing.T) {
	t.Parallel()
	src, peers, dir, limit := limitedSeedWith(t, Config{MaxUploads: 1}, 8<<20, 2<<20)
	var transfers []*Transfer
	var outs []string
	for range 2 {
		out := t.TempDir()
		store := openStore(t, out)
		tr, err := openSession(t, Config{}).Add(src, store, Options{Peers: peers})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		transfers, outs = append(transfers, tr), append(outs, out)
	}
	var have [2]int64
	until(t, transfers[0], "one of them served", func(Progress) bool {
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
	wait(t, transfers[first])
	wait(t, transfers[second])
	for i, tr := range transfers {
		tr.Close()
		sameFiles(t, src, dir, outs[i])
	}
}
