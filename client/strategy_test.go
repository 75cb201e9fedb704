package client

import (
	"testing"
	"testing/synctest"

	"github.com/anacrolix/torrent"
	"golang.org/x/time/rate"
)

func TestParseStrategy(t *testing.T) {
	for _, s := range []Strategy{Fastest, Strict, Fuzzy} {
		if got, err := ParseStrategy(s.String()); got != s || err != nil {
			t.Errorf("%v: %v, %v", s, got, err)
		}
	}
	if _, err := ParseStrategy("slowest"); err == nil {
		t.Error("slowest is a strategy")
	}
}

func TestUrgency(t *testing.T) {
	count := map[torrent.PiecePriority]int{}
	for range 1000 {
		count[Selection{Strategy: Fuzzy}.urgency(Normal)]++
		if (Selection{Strategy: Strict}).urgency(Low) != torrent.PiecePriorityNext {
			t.Fatal("strict has put a piece off")
		}
	}
	if n := count[torrent.PiecePriorityNext]; n < 400 || n > 600 || n+count[enginePriority[Normal]] != 1000 {
		t.Errorf("fuzzy: %v", count)
	}
}

// Strict has the pieces in their order, but for those on their way; the others bring everything
// too. The order is looked at early: the queues of the connections grow with what they have
// fetched, and are longer later than what Strict asks for first.
func TestStrategies(t *testing.T) {
	t.Parallel()
	for _, strategy := range []Strategy{Fastest, Strict, Fuzzy} {
		t.Run(strategy.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var net pipes
				src, peers, dir, limit := limitedSeedOver(t, net.host(), Config{}, 16<<20, 1<<20)
				out := t.TempDir()
				store := openStore(t, out)
				tr, err := sessionOver(t, Config{}, fan{net.host(), 2}).Add(src, store, Options{Peers: peers, Selection: Selection{Strategy: strategy}})
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				simulateUntil(t, tr, func(p Progress) bool { return p.Have > 2<<20 })
				have, gaps, last, n := 0, 0, 0, 0 // pieces missing before the last one that is there
				for _, run := range tr.torrent.PieceStateRuns() {
					if run.Complete {
						gaps, last = n-have, n+run.Length
						have += run.Length
					}
					n += run.Length
				}
				if most := strictBytes / (64 << 10); strategy == Strict && gaps > most {
					t.Errorf("%d pieces are missing before the last of %d, want at most %d", gaps, last, most)
				}
				limit.SetLimit(rate.Inf)
				simulateWait(t, tr)
				tr.Close()
				sameFiles(t, src, dir, out)
			})
		})
	}
}
