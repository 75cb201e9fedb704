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

// preferRarest chooses anew which pieces are asked for first.
func (t *Transfer) preferRarest() {
	w := t.want
	if t.isDone || w == nil || !w.plain {
		return
	}
	if t.rarest == nil {
		t.rarest = newRarest(len(w.pieces))
	}
	r := t.rarest
	if r.turns--; r.turns > 0 {
		return
	}
	has := map[pathsel.PeerID]func(each func(piece uint32) (more bool)){}
	leechers := false
	var rate float64 // bytes a second
	for x := range t.greetedRows() {
		g := t.session.gauges.find(x.link.face)
		if g == nil {
			continue
		}
		rate += x.in.rate / 8
		who := uploadPeer(x)
		if has[who] == nil {
			b := g.conn.PeerPieces()
			has[who] = b.Iterate
			leechers = leechers || b.GetCardinality() < uint64(len(w.pieces))
		}
	}
	r.turns = 1 + len(w.pieces)*(len(has)+rarestState)/rarestWork
	if !leechers && len(r.first) == 0 {
		return // seeds have everything, and data in order is easier to store
	}
	peers := make([]int, len(w.pieces))
	for _, pieces := range has {
		pieces(func(i uint32) bool {
			if int(i) < len(peers) {
				peers[i]++
			}
			return true
		})
	}
	var missing []missingPiece
	i := 0
	for _, run := range t.torrent.PieceStateRuns() {
		for range run.Length {
			if !run.Ok || !run.Complete {
				missing = append(missing, missingPiece{i, peers[i], run.Partial})
			}
			i++
		}
	}
	ahead := rarestTime + time.Duration(r.turns)*sampleEvery
	count := min(rarestMost, max(rarestLeast, int(rate*ahead.Seconds())/int(w.layout.PieceLength)))
	raise, lower := r.choose(missing, count)
	for _, i := range raise {
		t.torrent.Piece(i).SetPriority(torrent.PiecePriorityHigh)
	}
	for _, i := range lower {
		t.torrent.Piece(i).SetPriority(torrent.PiecePriorityNormal)
	}
}
