package client

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anacrolix/torrent"
)

func missingOf(peers ...int) []missingPiece {
	out := make([]missingPiece, len(peers))
	for i, n := range peers {
		out[i] = missingPiece{index: i, peers: n}
	}
	return out
}

func TestRarestFirst(t *testing.T) {
	r := newRarest(6)
	raise, lower := r.choose(missingOf(3, 1, 0, 2, 1, 2), 3)
	slices.Sort(raise)
	if len(raise) != 3 || raise[0] != 1 || !slices.Contains(raise, 4) || slices.Contains(raise, 0) || slices.Contains(raise, 2) || len(lower) != 0 {
		t.Fatalf("raise %v, lower %v: want both that one peer has, and one that two have", raise, lower)
	}
	// Nothing has changed.
	if raise, lower = r.choose(missingOf(3, 1, 0, 2, 1, 2), 3); len(raise)+len(lower) != 0 {
		t.Errorf("raise %v, lower %v", raise, lower)
	}
	// Everybody has got 1 and 4, of which some is there of 4; what remains is rarer.
	m := missingOf(3, 5, 0, 2, 5, 2)
	m[4].started = true
	raise, lower = r.choose(m, 3)
	if !slices.Equal(lower, []int{1}) || len(raise) != 1 || !r.first[3] || !r.first[4] || !r.first[5] {
		t.Errorf("raise %v, lower %v, first %v", raise, lower, r.first)
	}
	// What is complete is not lowered: it is asked for no more.
	if _, lower = r.choose(missingOf(3)[:1], 1); slices.ContainsFunc(lower, func(i int) bool { return i != 0 }) || !r.first[0] || len(r.first) != 1 {
		t.Errorf("lower %v, first %v", lower, r.first)
	}
}

// Two leechers that see the same choose differently, and one of them does not choose by number.
func TestRarestByChance(t *testing.T) {
	peers := make([]int, 1000)
	for i := range peers {
		peers[i] = 1
	}
	a, _ := newRarest(len(peers)).choose(missingOf(peers...), 10)
	b, _ := newRarest(len(peers)).choose(missingOf(peers...), 10)
	slices.Sort(a)
	slices.Sort(b)
	if slices.Equal(a, b) || a[9] == 9 {
		t.Errorf("%v and %v", a, b)
	}
}

// A request is left alone for longer while the swarm waits for pieces that nobody has.
func TestScarcePieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := func(pieces ...uint32) func(func(uint32) bool) {
			return slices.Values(pieces)
		}
		missing := func(n int) torrent.PieceStateRuns { return torrent.PieceStateRuns{{Length: n}} }
		there := torrent.PieceStateRun{Length: 2}
		there.Ok, there.Complete = true, true
		for _, c := range []struct {
			name  string
			view  rarestView
			waits bool
		}{
			{"each piece somewhere", rarestView{states: missing(3), has: []func(func(uint32) bool){peer(0, 1), peer(2)}}, false},
			{"one nowhere", rarestView{states: missing(3), has: []func(func(uint32) bool){peer(0), peer(2)}}, true},
			{"it is there", rarestView{states: append(missing(1), there), has: []func(func(uint32) bool){peer(0), peer(2)}}, false},
			{"no leechers", rarestView{states: missing(3)}, false},
		} {
			c.view.pieces, c.view.pieceLength, c.view.leechers = 3, 1<<14, c.name != "no leechers"
			r := newRarest(3)
			if r.plan(c.view); r.waits != c.waits {
				t.Errorf("%s: waits %t", c.name, r.waits)
			}
		}

		var config torrent.ClientConfig
		g := gauges{grace: &config.StealRequestGrace}
		grace := func() time.Duration {
			g.count(&torrent.Peer{}, 1)
			return config.StealRequestGrace
		}
		before := grace()
		g.waits(time.Second)
		during := grace()
		time.Sleep(time.Second)
		if after := grace(); before != stealGrace || during != scarceGrace || after != stealGrace {
			t.Errorf("grace %v, %v, %v", before, during, after)
		}
	})
}
