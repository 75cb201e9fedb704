package client

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	pp "github.com/anacrolix/torrent/peer_protocol"

	"braid/client/wire"
	"braid/pathsel"
)

// revelation decides which pieces a seed shows to which peer while only the seed has all of them
// (super-seeding, after BEP 16).
//
// Leechers that see a complete seed request much the same pieces. So the seed sends some pieces
// several times before it has sent each one once, and all leechers wait for the last piece. A
// super-seed says that it has nothing, and then shows one piece after another. Each piece goes to
// one peer, which passes it on.
//
//	fresh --show--> shown to one peer --arrives--> held by the peer --> passed on by it
//	  ^                     |
//	  +---- peer leaves ----+
//
// In BEP 16 a seed shows a peer the next piece when another peer has the peer's last one. So the
// seed waits for peers that do not pass on pieces, or cannot. Here no peer waits while there are
// fresh pieces: each has some ahead of it (shown and not yet held), enough for its rate. When no
// fresh piece is left, a peer without pieces ahead waits a moment for pieces from others. From then
// on it is shown the pieces that the fewest peers have or are about to have. Leechers without
// connections to each other depend on that.
//
// Unsolved: a peer that fetches over several unequal paths has too few pieces ahead for all of them
// until its rate is known, which delays it near the end. On paths of 18 and 1.8 Mbit/s it reached
// four fifths of the rate that it has with an ordinary seed.
type revelation struct {
	alone     int // the least number of pieces ahead of the only peer; with several peers it is 2
	length    float64
	random    *rand.Rand
	claims    []uint16    // for each piece: peers that have it, or were shown it and will fetch it
	fresh     wire.Bitset // pieces without claims
	unclaimed int         // number of fresh pieces
	whole     int         // peers that have every piece, which is a claim to each
	peers     map[pathsel.PeerID]*viewer
}

// viewer is a peer that is shown pieces.
type viewer struct {
	shown, has, asked, claimed wire.Bitset
	lacking                    wire.Bitset // pieces that it was not shown and does not have

	looked  int // where rarest begins to look
	ahead   int // pieces that it was shown and does not have yet
	waiting int // pieces ahead that it has asked for
	count   int // pieces that it has
	whole   bool
	given   bool // it was shown a piece at least once
	served  bool
	eager   bool      // it has waited for others, once
	window  int       // the number of pieces that it shall have ahead
	grown   int       // the least window, since smaller ones were too small
	moved   time.Time // when it was last shown a piece, asked for one, or got one
}

// viewing is the state of a peer at a step.
type viewing struct {
	id     pathsel.PeerID
	served bool    // it may fetch from us
	wants  bool    // it is interested in a piece that it was shown
	rate   float64 // at which it fetches from us, in bytes per second
	rtt    time.Duration
	news   []*pieceNews // of each of its connections
}

// pieceNews is what a peer has said about pieces over a connection since the last step.
type pieceNews struct {
	mu     sync.Mutex
	has    pieceLog
	asks   pieceLog // pieces of which it has requested a block
	hasAll bool
}

// note notes what a message says about pieces; pieces is their number in the torrent. It tells
// whether the peer names some for the first time since the last step.
func (n *pieceNews) note(m *pp.Message, pieces int) (news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch m.Type {
	case pp.Request:
		n.asks.add(int(m.Index), pieces)
	case pp.Have:
		news = n.has.add(int(m.Index), pieces)
	case pp.Bitfield:
		for i, has := range m.Bitfield {
			news = has && n.has.add(i, pieces) || news
		}
	case pp.HaveAll:
		news, n.hasAll = !n.hasAll, true
	}
	return news
}

// pieceLog notes pieces, each once, until it is emptied. Both take constant time for each piece.
// It takes at most two bits for each piece of the torrent, however often a peer repeats itself.
type pieceLog struct {
	bits  wire.Bitset
	words []int // indices of the words in bits that are not zero
}

// add notes a piece of a torrent with that number of pieces. It tells whether the piece is new.
func (l *pieceLog) add(piece, pieces int) bool {
	if piece < 0 || piece >= pieces {
		return false
	}
	if l.bits == nil {
		l.bits = wire.NewBitset(pieces)
	}
	w := piece / 64
	switch {
	case l.bits.Has(piece):
		return false
	case l.bits[w] == 0:
		l.words = append(l.words, w)
	}
	l.bits.Set(piece)
	return true
}

// empty takes each piece out, and gives it to f.
func (l *pieceLog) empty(f func(piece int)) {
	for _, w := range l.words {
		for word := l.bits[w]; word != 0; word &= word - 1 {
			f(w*64 + bits.TrailingZeros64(word))
		}
		l.bits[w] = 0
	}
	l.words = l.words[:0]
}

const (
	// The pieces ahead of a peer last at least for aheadTime and a round trip: meanwhile a piece
	// goes through the peer's disk, and the peer says that it has the piece. If it is shorter, the
	// seed is idle now and then; if it is longer, each piece waits longer to be passed on.
	aheadTime = 500 * time.Millisecond
	// aloneTime is the same for the only peer. It is longer, since the seed has nobody else to send
	// to, and no swarm waits.
	aloneTime = time.Second
	// dryPatience is how long a peer without pieces ahead waits for pieces from others. If it is
	// shorter, the seed repeats pieces that are on their way to the peer; if it is longer, lonely
	// peers lose time.
	dryPatience = 250 * time.Millisecond
	// interestTime and a round trip are enough for an interested peer to say so.
	interestTime = 250 * time.Millisecond
	// askedPatience is how long pieces that the peer has requested may make no progress.
	askedPatience = 10 * time.Second
)

func newRevelation(pieces int, length int64, seed uint64) *revelation {
	return &revelation{
		// With fewer, the peer runs dry before its rate is known. With more, too many pieces are
		// claimed when a second peer comes.
		alone: max(2, pieces/64), length: float64(length), random: rand.New(rand.NewPCG(seed, 16)),
		claims: make([]uint16, pieces), fresh: wire.FullBitset(pieces), unclaimed: pieces,
		peers: map[pathsel.PeerID]*viewer{},
	}
}

func (r *revelation) claim(p *viewer, piece int) {
	if p.claimed.Has(piece) {
		return
	}
	p.claimed.Set(piece)
	if r.claims[piece]++; r.claims[piece] == 1 {
		r.fresh.Clear(piece)
		r.unclaimed--
	}
}

func (r *revelation) unclaim(p *viewer, piece int) {
	if !p.claimed.Has(piece) {
		return
	}
	p.claimed.Clear(piece)
	if r.claims[piece]--; r.claims[piece] == 0 {
		r.fresh.Set(piece)
		r.unclaimed++
	}
}

// concerns tells whether a peer's message about a piece matters: the peer is known and does not
// have every piece, and there is such a piece.
func (r *revelation) concerns(p *viewer, piece int) bool {
	return p != nil && !p.whole && piece >= 0 && piece < len(r.claims)
}

func (r *revelation) has(id pathsel.PeerID, piece int, now time.Time) {
	p := r.peers[id]
	if !r.concerns(p, piece) || p.has.Has(piece) {
		return
	}
	p.has.Set(piece)
	p.lacking.Clear(piece)
	if p.count++; p.count == len(r.claims) {
		r.hasAll(id)
		return
	}
	r.claim(p, piece)
	if !p.shown.Has(piece) {
		return
	}
	p.ahead--
	p.moved = now
	if p.asked.Has(piece) {
		p.waiting--
	}
}

// hasAll notes that a peer says that it has every piece. It does not go over the pieces: otherwise
// a peer could keep the seed busy with five bytes on each new connection.
func (r *revelation) hasAll(id pathsel.PeerID) {
	if p := r.peers[id]; p != nil && !p.whole {
		r.release(p, nil, nil)
		p.whole, p.count, p.ahead, p.waiting = true, len(r.claims), 0, 0
		r.whole++
	}
}

func (r *revelation) asks(id pathsel.PeerID, piece int, now time.Time) {
	p := r.peers[id]
	if !r.concerns(p, piece) || !p.shown.Has(piece) || p.has.Has(piece) {
		return
	}
	p.moved = now
	if !p.asked.Has(piece) {
		p.asked.Set(piece)
		p.waiting++
	}
	if p.served {
		r.claim(p, piece)
	}
}

func (r *revelation) hear(id pathsel.PeerID, n *pieceNews, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hasAll {
		r.hasAll(id)
		n.hasAll = false
	}
	n.has.empty(func(piece int) { r.has(id, piece, now) })
	n.asks.empty(func(piece int) { r.asks(id, piece, now) })
}

// join adds a peer, unless it is known.
func (r *revelation) join(id pathsel.PeerID, now time.Time) {
	if r.peers[id] == nil {
		n := len(r.claims)
		none := func() wire.Bitset { return wire.NewBitset(n) }
		r.peers[id] = &viewer{
			shown: none(), has: none(), asked: none(), claimed: none(),
			lacking: wire.FullBitset(n), served: true, moved: now,
		}
	}
}

// step returns the pieces to show each peer now. It forgets peers that have left.
func (r *revelation) step(now time.Time, there []viewing) map[pathsel.PeerID][]int {
	served, waiting := r.update(now, there)
	if len(r.peers) > len(there) {
		r.forget(there)
	}
	only := served == 1
	fresh := r.unclaimed > 0 && r.whole == 0
	r.setWindows(there, only, fresh && waiting == 0)
	show := map[pathsel.PeerID][]int{}
	if fresh {
		r.showFresh(now, there, only, show)
	}
	r.showRarest(now, there, show)
	return show
}

// update takes in what peers have said. It counts the served peers, and their pieces ahead that
// they have asked for.
func (r *revelation) update(now time.Time, there []viewing) (served, waiting int) {
	for _, b := range there {
		r.join(b.id, now)
		for _, n := range b.news {
			r.hear(b.id, n, now)
		}
		p := r.peers[b.id]
		if p.served && !b.served { // others get the pieces that it cannot fetch
			r.release(p, p.has, nil)
		}
		if p.served = b.served; p.served {
			served++
			waiting += p.waiting
		}
	}
	return served, waiting
}

// setWindows sets the number of pieces that each peer shall have ahead. only tells that a single
// peer is served. If the seed is idle, windows were too small for peers that have nothing ahead.
func (r *revelation) setWindows(there []viewing, only, idle bool) {
	for _, b := range there {
		p := r.peers[b.id]
		least, ahead := 2, aheadTime+b.rtt
		if only {
			least, ahead = r.alone, aloneTime+b.rtt
		}
		enough := max(least, 1+int(b.rate*ahead.Seconds()/r.length))
		if idle && p.ahead == 0 && p.given {
			p.grown = min(2*p.window, len(r.claims))
		}
		p.window = max(p.grown, min(enough, len(r.claims)))
	}
}

// show notes that the peer is shown a piece.
func (p *viewer) show(piece int, now time.Time) {
	p.shown.Set(piece)
	p.lacking.Clear(piece)
	p.given = true
	p.ahead++
	p.moved = now
}

// showFresh fills the windows with fresh pieces. Each peer gets one piece a round, so that the
// first peers do not get all.
func (r *revelation) showFresh(
	now time.Time, there []viewing, only bool, show map[pathsel.PeerID][]int,
) {
	for more := true; more; {
		more = false
		for _, b := range there {
			p := r.peers[b.id]
			if !p.served || p.whole || p.ahead >= p.window {
				continue
			}
			if i := r.next(p, only); i >= 0 {
				p.show(i, now)
				r.claim(p, i)
				show[b.id] = append(show[b.id], i)
				more = true
			}
		}
	}
}

// showRarest shows rare pieces, which others have or will have, to peers that have waited too long.
func (r *revelation) showRarest(now time.Time, there []viewing, show map[pathsel.PeerID][]int) {
	for _, b := range there {
		p := r.peers[b.id]
		if !p.served || p.whole {
			continue
		}
		idle, patience := now.Sub(p.moved), dryPatience
		switch {
		case p.waiting > 0:
			patience = askedPatience
		case !b.wants && p.ahead > 0:
			patience = interestTime + b.rtt // and would have asked by now
		}
		if idle >= patience {
			p.moved = now // so that this is not repeated at each step if there is nothing to show
			if p.ahead == 0 {
				p.eager = true
			} else {
				// It may not want the pieces ahead of it, so its claims to them end.
				r.release(p, p.has, p.asked)
				p.grown = min(4*p.window, len(r.claims))
				p.window = p.ahead + p.grown
			}
		} else if !p.eager || 2*p.ahead > p.window {
			continue
		}
		for _, i := range r.rarest(p, p.window-p.ahead) {
			p.show(i, now)
			show[b.id] = append(show[b.id], i)
		}
	}
}

// forget ends the claims of peers that have left, so that others are shown their pieces.
func (r *revelation) forget(there []viewing) {
	stay := make(map[pathsel.PeerID]bool, len(there))
	for _, b := range there {
		stay[b.id] = true
	}
	for id, p := range r.peers {
		if stay[id] {
			continue
		}
		r.release(p, nil, nil)
		if p.whole {
			r.whole--
		}
		delete(r.peers, id)
	}
}

// release ends the claims of a peer, except to pieces in one of the sets, which may be nil.
func (r *revelation) release(p *viewer, but, nor wire.Bitset) {
	for i := p.claimed.Next(0, but); i >= 0; i = p.claimed.Next(i+1, but) {
		if nor == nil || !nor.Has(i) {
			r.unclaim(p, i)
		}
	}
}

// next is a fresh piece for the peer; -1 if there is none. It is a random one, so that several
// seeds show different pieces. If first is true, it is the first one: a single peer may want the
// pieces in order.
func (r *revelation) next(p *viewer, first bool) int {
	if r.unclaimed == 0 {
		return -1
	}
	if !first {
		if i := r.fresh.Next(r.random.IntN(len(r.claims)), p.shown); i >= 0 {
			return i
		}
	}
	return r.fresh.Next(0, p.shown)
}

// rarestFrom is how many pieces the rarest are chosen from. A choice follows each piece that a peer
// gets, so looking at all pieces of the torrent each time would take too long.
const rarestFrom = 256

// rarest returns pieces that the peer was not shown and does not have, up to that number, the ones
// with the fewest claims first. It looks at some pieces only, and goes on behind them the next
// time.
func (r *revelation) rarest(p *viewer, most int) []int {
	var out []int
	enough := max(rarestFrom, 4*most)
	look := func(from, to int) {
		for len(out) < enough {
			i := p.lacking.Next(from, nil)
			if i < 0 || i >= to {
				return
			}
			out, from = append(out, i), i+1
		}
	}
	look(p.looked, len(r.claims))
	look(0, p.looked)
	if len(out) > 0 {
		p.looked = (out[len(out)-1] + 1) % len(r.claims)
	}
	r.random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	slices.SortStableFunc(out, func(a, b int) int { return int(r.claims[a]) - int(r.claims[b]) })
	return out[:min(most, len(out))]
}

// shown are the pieces that the peer was shown and does not have.
func (r *revelation) shown(id pathsel.PeerID) wire.Bitset {
	p := r.peers[id]
	if p == nil || p.whole {
		return nil
	}
	pieces := slices.Clone(p.shown)
	for w, there := range p.has {
		pieces[w] &^= there
	}
	return pieces
}

func (r *revelation) complete() bool { return r.whole > 0 }
