package client

import (
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/anacrolix/torrent"

	"braid/storage"
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

// Without leechers the engine is not asked for the states of all pieces.
func TestSeedsMakeNoSwarm(t *testing.T) {
	fake := &fakeTorrent{have: make([]bool, 3)}
	w := &want{pieces: make([]Priority, 3), layout: storage.Layout{PieceLength: 1}, plain: true}
	f := rarestFirst{core: &core{torrent: fake, want: w}}
	if f.choose(); fake.runs != 0 {
		t.Errorf("%d looks at all pieces", fake.runs)
	}
	f.memory.first[0] = true // some peer lacked pieces
	if f.choose(); fake.runs != 1 {
		t.Errorf("%d looks at all pieces in a swarm, want 1", fake.runs)
	}
}

// While there is more to request, a request stays with its connection for five seconds. At the end,
// it stays for twice the time that requests take.
func TestRequestGrace(t *testing.T) {
	peer := func(pieces ...uint32) iter.Seq[uint32] { return slices.Values(pieces) }
	both := []iter.Seq[uint32]{peer(0, 1), peer(2)}
	missing := func(n int) torrent.PieceStateRuns { return torrent.PieceStateRuns{{Length: n}} }
	there := torrent.PieceStateRun{Length: 2}
	there.Ok, there.Complete = true, true
	const block = 16 << 10 // bytes
	for _, c := range []struct {
		name string
		view rarestView
		want time.Duration
	}{
		{"the last pieces, nothing is requested", rarestView{states: missing(3), has: both}, stealGrace},
		{"four blocks a second, four requests", rarestView{states: missing(3), has: both, rate: 4 * block, outstanding: 4}, 2 * time.Second},
		{"little is requested", rarestView{states: missing(3), has: both, rate: 100 * block, outstanding: 4}, stealGrace},
		{"much is requested", rarestView{states: missing(3), has: both, rate: block, outstanding: 100}, longGrace},
		{"no data comes", rarestView{states: missing(3), has: both, outstanding: 4}, stealGrace},
		{"a piece is nowhere", rarestView{states: missing(3), has: []iter.Seq[uint32]{peer(0), peer(2)}}, longGrace},
		{"it is here", rarestView{states: append(missing(1), there), has: []iter.Seq[uint32]{peer(0), peer(2)}}, stealGrace},
		{"more pieces than are chosen", rarestView{states: missing(rarestLeast + 1), has: []iter.Seq[uint32]{peer(0, 1, 2, 3, 4, 5, 6, 7, 8)}}, longGrace},
		{"no leechers", rarestView{states: missing(rarestLeast + 1)}, stealGrace},
	} {
		c.view.pieces, c.view.pieceLength, c.view.leechers = rarestLeast+1, block, c.name != "no leechers"
		r := newRarest(c.view.pieces)
		if r.plan(c.view); r.grace != c.want {
			t.Errorf("%s: %v, want %v", c.name, r.grace, c.want)
		}
	}

	var config torrent.ClientConfig
	c := callbacks{&common{gauges: gauges{grace: &config.StealRequestGrace}}}
	swarm, other := &torrent.Peer{}, &torrent.Peer{}
	x := &gauge{}
	x.grace.Store(int64(time.Second))
	c.gauges.byPeer.Store(swarm, x)
	for p, want := range map[*torrent.Peer]time.Duration{swarm: time.Second, other: stealGrace} {
		if c.count(p, 1); config.StealRequestGrace != want {
			t.Errorf("grace %v, want %v", config.StealRequestGrace, want)
		}
	}
}
