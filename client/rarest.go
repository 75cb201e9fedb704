package client

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/anacrolix/torrent"

	"braid/pathsel"
)

// rarest chooses the pieces that are requested first if not every peer has all of them.
//
// The engine requests the rarest pieces first, and breaks ties by the order of the data. So the
// leechers of a new swarm all ask its seed for the same few pieces, and it sends these to each of
// them. Here each leecher breaks ties by a random order of its own, and gives the first pieces a
// higher priority.
type rarest struct {
	order []int         // each piece's place among equally rare ones
	first map[int]bool  // pieces that are requested first now
	turns int           // looks left until the next choice
	swarm bool          // some peer lacks pieces, or did
	grace time.Duration // how long a request stays with its connection
}

const (
	// The pieces requested first are as many as come until the next choice, and for rarestTime
	// after it, at the present rate. That is enough for the requests under way. With more, several
	// leechers would more often request the same ones.
	rarestTime  = time.Second
	rarestLeast = 8   // pieces
	rarestMost  = 256 // pieces
	// rarestWork bounds the work per look, counted in pieces of peers: if there is more, choices
	// are less frequent. Looking up the engine's state of a piece counts like rarestState peers.
	rarestWork  = 100_000
	rarestState = 4
)

// An idle connection may take a request over. In a swarm, connections are often idle,
// since their peers do not have the missing pieces. If they took over requests whose blocks are
// already on their way, these blocks would arrive twice. With stealGrace alone, up to half of the
// data arrived twice on full lines.
const (
	// longGrace is the most time for which a request stays with its connection. It applies while
	// more pieces are missing than are chosen, or while no connected peer has one of them.
	longGrace = 5 * time.Second
	// waitGrace applies at the end of a download. It counts in times that requests take at the
	// present rate: some peers are slower than the mean.
	waitGrace = 2
)

func newRarest(pieces int) *rarest {
	return &rarest{order: rand.Perm(pieces), first: map[int]bool{}}
}

// missingPiece is a piece that is not complete.
type missingPiece struct {
	index   int
	peers   int  // that have it
	started bool // some blocks of it have come
}

// choose chooses count of the missing pieces: first those of the last choice that have been
// started, then the rarest that a peer has. It returns the pieces that are new in the choice, and
// those no longer in it.
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
		return cmp.Or(a.peers-b.peers, r.order[a.index]-r.order[b.index])
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

// rarestView is what a choice depends on.
type rarestView struct {
	pieces      int
	pieceLength int64
	leechers    bool                   // not every peer has all pieces
	rate        float64                // at which data comes, in bytes a second
	outstanding int                    // requests that are not answered yet
	states      torrent.PieceStateRuns // nil if there is no swarm
	has         []iter.Seq[uint32]     // the pieces of each peer, copied when they are read
}

// isSwarm tells whether rare pieces are requested first: some peer lacks pieces, or did.
func (r *rarest) isSwarm(leechers bool) bool { return leechers || len(r.first) > 0 }

// plan returns the pieces that are requested first from now on, and those that no longer are.
func (r *rarest) plan(v rarestView) (raise, lower []int) {
	r.turns, r.grace = 1+v.pieces*(len(v.has)+rarestState)/rarestWork, stealGrace
	if r.swarm = r.isSwarm(v.leechers); !r.swarm {
		return nil, nil // seeds have everything, and data in order is easier to store
	}
	peers := make([]int, v.pieces)
	for _, pieces := range v.has {
		for i := range pieces {
			if int(i) < len(peers) {
				peers[i]++
			}
		}
	}
	var missing []missingPiece
	nowhere := false
	for i, state := range pieceStates(v.states) {
		if !isRight(state) {
			missing = append(missing, missingPiece{i, peers[i], state.Partial})
			nowhere = nowhere || peers[i] == 0
		}
	}
	ahead := rarestTime + time.Duration(r.turns)*sampleEvery
	count := min(rarestMost, max(rarestLeast, int(v.rate*ahead.Seconds())/int(v.pieceLength)))
	if nowhere || len(missing) > count {
		r.grace = longGrace
	} else if v.rate > 0 {
		answered := time.Duration(v.outstanding) * min(pathsel.BlockTime(v.rate), longGrace)
		r.grace = min(max(waitGrace*answered, stealGrace), longGrace)
	}
	return r.choose(missing, count)
}

// rarestFirst makes the engine request rare pieces first, if all wanted pieces have the same
// priority.
type rarestFirst struct {
	*core
	memory *rarest // nil: not looked yet
}

func (f *rarestFirst) view() rarestView {
	v := rarestView{pieces: len(f.want.pieces), pieceLength: f.want.layout.PieceLength}
	for _, rows := range f.peers.connectedPeers() {
		for _, r := range rows {
			v.rate += r.in.rate / 8
			v.outstanding += r.link.gauge.Load().pending()
		}
		conn := rows[0].link.gauge.Load().conn
		v.leechers = v.leechers || conn.Stats().RemotePieceCount < v.pieces
		v.has = append(v.has, func(yield func(uint32) bool) { conn.Pieces().Iterate(yield) })
	}
	if f.memory.isSwarm(v.leechers) { // it goes over all pieces
		v.states = f.torrent.PieceStateRuns()
	}
	return v
}

// choose chooses again. With many pieces, it does so only at some of the looks.
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
	f.tell(f.memory.grace, f.memory.swarm)
	for _, i := range raise {
		f.torrent.SetPriority(i, torrent.PiecePriorityHigh)
	}
	for _, i := range lower {
		f.torrent.SetPriority(i, torrent.PiecePriorityNormal)
	}
}

// tell tells the connections how long requests stay with them, and whether they are of a swarm.
func (f *rarestFirst) tell(grace time.Duration, swarm bool) {
	for r := range f.peers.connected() {
		x := r.link.gauge.Load()
		x.grace.Store(int64(grace))
		x.swarm.Store(swarm)
	}
}

// forget begins anew, after the engine has lost all priorities.
func (f *rarestFirst) forget() {
	f.tell(stealGrace, false)
	if f.memory != nil {
		clear(f.memory.first)
	}
}
