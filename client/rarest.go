package client

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/anacrolix/torrent"

	"braid/pathsel"
)

// Which pieces are asked for first where not every peer has all of them.
//
// The engine asks for the rarest pieces first, and of equally rare ones for those that come first in the data, so that the leechers of a
// new swarm all ask its seed for the same few, which it sends to each of them. Here each leecher has an order of its own among
// equals, by chance, and what comes first in it is given a higher priority than the rest.
type rarest struct {
	order []int        // each piece's place among equals
	first map[int]bool // pieces that are asked for first now
	turns int          // looks left until the next choice
}

const (
	// rarestTime is how much is asked for first, at the present rate, beside what comes until the next choice: enough for what is under
	// way, and little, since the more each leecher asks for, the more of it others do as well.
	rarestTime  = time.Second
	rarestLeast = 8   // pieces
	rarestMost  = 256 // pieces
	// rarestWork is how many pieces of peers may be gone over at each look; with more, choices are made less often. The engine's own
	// state of a piece takes as long as those of several peers.
	rarestWork  = 100_000
	rarestState = 4
)

func newRarest(pieces int) *rarest {
	return &rarest{order: rand.Perm(pieces), first: map[int]bool{}}
}

// missingPiece is one that is not there yet.
type missingPiece struct {
	index   int
	peers   int  // that have it
	started bool // some of it is there
}

// choose takes count of the missing pieces, the rarest that somebody has, and those of the last choice of which some is there. It
// returns what is to be asked for first from now on, and what no longer.
func (r *rarest) choose(missing []missingPiece, count int) (raise, lower []int) {
	next := map[int]bool{}
	var candidates []missingPiece
	for _, m := range missing {
		switch {
		case m.started && r.first[m.index]:
			next[m.index] = true
		case m.peers > 0:
			candidates = append(candidates, m)
		}
	}
	slices.SortFunc(candidates, func(a, b missingPiece) int {
		return cmp.Or(cmp.Compare(a.peers, b.peers), cmp.Compare(r.order[a.index], r.order[b.index]))
	})
	for _, m := range candidates[:min(len(candidates), max(0, count-len(next)))] {
		next[m.index] = true
	}
	for i := range next {
		if !r.first[i] {
			raise = append(raise, i)
		}
	}
	for _, m := range missing {
		if r.first[m.index] && !next[m.index] {
			lower = append(lower, m.index)
		}
	}
	r.first = next
	return raise, lower
}

// rarestView is what a choice is made of.
type rarestView struct {
	pieces      int
	pieceLength int64
	has         []func(each func(piece uint32) (more bool)) // the pieces of each connected peer
	leechers    bool                                        // not every peer has all pieces
	rate        float64                                     // at which data comes, in bytes a second
	states      torrent.PieceStateRuns
}

// plan says which pieces are asked for first from now on, and which no longer.
func (r *rarest) plan(v rarestView) (raise, lower []int) {
	r.turns = 1 + v.pieces*(len(v.has)+rarestState)/rarestWork
	if !v.leechers && len(r.first) == 0 {
		return nil, nil // seeds have everything, and data in order is easier to store
	}
	peers := make([]int, v.pieces)
	for _, each := range v.has {
		each(func(i uint32) bool {
			if int(i) < len(peers) {
				peers[i]++
			}
			return true
		})
	}
	var missing []missingPiece
	i := 0
	for _, run := range v.states {
		for range run.Length {
			if !run.Ok || !run.Complete {
				missing = append(missing, missingPiece{i, peers[i], run.Partial})
			}
			i++
		}
	}
	ahead := rarestTime + time.Duration(r.turns)*sampleEvery
	count := min(rarestMost, max(rarestLeast, int(v.rate*ahead.Seconds())/int(v.pieceLength)))
	return r.choose(missing, count)
}

// rarestFirst has the engine ask for rare pieces first, if all wanted pieces have the same priority.
type rarestFirst struct {
	*core
	memory *rarest // nil: not looked yet
}

func (f *rarestFirst) view() rarestView {
	v := rarestView{
		pieces: len(f.want.pieces), pieceLength: f.want.layout.PieceLength, states: f.torrent.PieceStateRuns(),
	}
	seen := map[pathsel.PeerID]bool{}
	for r := range f.peers.connected() {
		g := f.gauges.find(r.link.face)
		if g == nil {
			continue
		}
		v.rate += r.in.rate / 8
		if id := r.remoteID(); !seen[id] {
			seen[id] = true
			b := g.conn.Pieces()
			v.has = append(v.has, b.Iterate)
			v.leechers = v.leechers || b.GetCardinality() < uint64(v.pieces)
		}
	}
	return v
}

// choose chooses again, unless too little time has passed for so many pieces.
func (f *rarestFirst) choose() {
	if f.isDone || f.want == nil || !f.want.plain {
		return
	}
	if f.memory == nil {
		f.memory = newRarest(len(f.want.pieces))
	}
	if f.memory.turns--; f.memory.turns > 0 {
		return
	}
	raise, lower := f.memory.plan(f.view())
	for _, i := range raise {
		f.torrent.SetPriority(i, torrent.PiecePriorityHigh)
	}
	for _, i := range lower {
		f.torrent.SetPriority(i, torrent.PiecePriorityNormal)
	}
}

// forget begins anew, after the engine has lost all priorities.
func (f *rarestFirst) forget() {
	if f.memory != nil {
		clear(f.memory.first)
	}
}
