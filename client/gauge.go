package client

import (
	"iter"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/metainfo"
	pp "github.com/anacrolix/torrent/peer_protocol"

	"braid/client/wire"
	"braid/pathsel"
)

// sampleEvery is the time between two looks at the connections, and between two decisions. If it is
// longer, dead paths are noticed late; if it is shorter, there is nothing new to see.
const sampleEvery = 200 * time.Millisecond

// gauge counts what the engine does on one connection, since the engine cannot be asked for that.
type gauge struct {
	conn        engineConn
	peer        *torrent.Peer         // the engine's name for conn in callbacks
	link        *link                 // nil: it has ended meanwhile
	outstanding atomic.Int64          // requests sent, neither answered nor taken back
	unchoked    atomic.Bool           // the peer serves us
	exchanges   [pexKinds]atomic.Bool // kinds of addresses that the peer takes in peer exchange
	port        atomic.Uint32         // at which the peer says that it listens; 0: it does not say
	node        atomic.Uint32         // the port of its DHT node, as it says (BEP 5); 0: it does not say
	toldNode    bool                  // it was told of our DHT node; for the transfer's goroutine
	restart     atomic.Bool           // the pipeline shall begin anew

	// For the engine's callbacks, which have its lock.
	pipeline pipeline
	peak     *int // see peakRequests

	mu     sync.Mutex
	has    pieceLog // pieces that the peer says it has, since the last takeNews; see gauges.watch
	asks   pieceLog // pieces of which it has requested a block
	hasAll bool     // it says it has all pieces
}

// pieceLog notes pieces, each once, until it is emptied. Both take constant time for each piece.
// It takes at most two bits for each piece of the torrent, however often a peer repeats itself.
type pieceLog struct {
	bits  wire.Bitset
	words []int // indices of the words in bits that are not zero
}

// add notes a piece of a torrent of so many. It tells whether the piece is new.
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

// hear notes what a message says about the pieces of a torrent with so many. It tells whether the
// peer names pieces for the first time since the last takeNews.
func (x *gauge) hear(m *pp.Message, pieces int) (news bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch m.Type {
	case pp.Request:
		x.asks.add(int(m.Index), pieces)
	case pp.Have:
		news = x.has.add(int(m.Index), pieces)
	case pp.Bitfield:
		for i, has := range m.Bitfield {
			news = has && x.has.add(i, pieces) || news
		}
	case pp.HaveAll:
		news, x.hasAll = !x.hasAll, true
	}
	return news
}

// takeNews is what the peer has said about pieces since the last call.
func (x *gauge) takeNews() pieceNews {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := pieceNews{hasAll: x.hasAll, has: x.drain(&x.has), asks: x.drain(&x.asks)}
	x.hasAll = false
	return n
}

func (x *gauge) drain(h *pieceLog) iter.Seq[int] {
	return func(yield func(int) bool) {
		x.mu.Lock()
		defer x.mu.Unlock()
		more := true
		h.empty(func(piece int) { more = more && yield(piece) })
	}
}

const (
	// stealGrace is how long the engine leaves a request with a connection before an idle one may
	// have it: a round trip between continents, and the time of a block on the link. With less,
	// blocks that are on their way would arrive twice.
	stealGrace = 300 * time.Millisecond
	// scarceGrace is for swarms that wait for pieces that nobody has yet. Connections are idle all
	// the time there, not only at the end. With stealGrace, they took requests for blocks that were
	// on their way: a fifth of the data came twice, and on slow links all of it came later.
	scarceGrace = 2 * time.Second
)

// gauges of all connections by their engine address. The engine calls most of this with its lock
// held.
type gauges struct {
	byAddr  sync.Map // engineAddr to *gauge
	watched sync.Map // metainfo.Hash of a torrent to watched
	useful  sync.Map // likewise to a usefulFunc

	scarce atomic.Int64   // the end of scarceGrace, in Unix ns: see waits
	grace  *time.Duration // the engine's StealRequestGrace, which it reads with its lock held
}

// waits notes that during the next d a transfer waits for pieces that no connected peer has.
func (g *gauges) waits(d time.Duration) { g.scarce.Store(time.Now().Add(d).UnixNano()) }

// install has the engine's callbacks fill the gauges. linkAt is the connection behind an engine
// address.
func (g *gauges) install(config *torrent.ClientConfig, linkAt func(engineAddr) *link) {
	c := &config.Callbacks
	g.grace = &config.StealRequestGrace
	c.PeerConnAdded = append(c.PeerConnAdded, func(p *torrent.PeerConn) {
		if at, ok := p.RemoteAddr.(engineAddr); ok {
			x := &gauge{conn: anacrolixConn{p}, peer: &p.Peer, link: linkAt(at), peak: peakRequests(&p.Peer)}
			x.deepen()
			g.byAddr.Store(at, x)
		}
	})
	c.PeerClosed = append(c.PeerClosed, func(p *torrent.Peer) {
		if x := g.of(p); x != nil {
			g.byAddr.CompareAndDelete(p.RemoteAddr, x) // unless a new connection has the engine address by now
		}
	})
	c.ReceivedUsefulData = append(c.ReceivedUsefulData, func(e torrent.ReceivedUsefulDataEvent) {
		if x := g.of(e.Peer); x != nil && x.link != nil {
			if f, ok := g.useful.Load(e.Peer.Torrent().InfoHash()); ok {
				m := e.Message
				f.(usefulFunc)(int(m.Index), int(m.Begin), len(m.Piece), x.link.Origin())
			}
		}
	})
	c.SentRequest = append(c.SentRequest, func(e torrent.PeerRequestEvent) { g.count(e.Peer, 1) })
	c.DeletedRequest = append(c.DeletedRequest, func(e torrent.PeerRequestEvent) { g.count(e.Peer, -1) })
	c.ReadMessage = func(p *torrent.PeerConn, m *pp.Message) {
		x := g.of(&p.Peer)
		if m.Keepalive || x == nil {
			return
		}
		switch m.Type {
		case pp.Choke, pp.Unchoke:
			x.unchoked.Store(m.Type == pp.Unchoke)
		case pp.Port:
			x.node.Store(uint32(m.Port))
		case pp.Have, pp.Bitfield, pp.HaveAll, pp.Request:
			v, _ := g.watched.Load(p.Torrent().InfoHash())
			if w, ok := v.(watched); ok && x.hear(m, w.pieces) {
				w.news()
			}
		}
	}
}

// usefulFunc is told of a useful block, and where it comes from. It is called with the engine's lock
// held, and must not wait.
type usefulFunc func(piece, begin, length int, from pathsel.Origin)

// onUseful has f told of each useful block of a torrent; nil: nobody is told.
func (g *gauges) onUseful(torrent metainfo.Hash, f usefulFunc) {
	if f == nil {
		g.useful.Delete(torrent)
	} else {
		g.useful.Store(torrent, f)
	}
}

// watched is a torrent for which the gauges note what peers say about pieces.
type watched struct {
	pieces int
	news   func()
}

// watch notes what peers say about the pieces of a torrent with so many, for takeNews, until
// unwatch. It calls news when a peer has got pieces, with the engine's lock held: news must not
// block.
func (g *gauges) watch(torrent metainfo.Hash, pieces int, news func()) {
	g.watched.Store(torrent, watched{pieces, news})
}

func (g *gauges) unwatch(torrent metainfo.Hash) { g.watched.Delete(torrent) }

func (g *gauges) count(p *torrent.Peer, n int64) {
	now := time.Now()
	if *g.grace = stealGrace; now.UnixNano() < g.scarce.Load() {
		*g.grace = scarceGrace
	}
	if x := g.of(p); x != nil {
		x.counts(n, now)
	}
}

func (g *gauges) of(p *torrent.Peer) *gauge {
	at, _ := p.RemoteAddr.(engineAddr)
	if x := g.find(at); x != nil && x.peer == p {
		return x
	}
	return nil
}

func (g *gauges) find(at engineAddr) *gauge {
	x, ok := g.byAddr.Load(at)
	if !ok {
		return nil
	}
	return x.(*gauge)
}

// counts records a request that was sent (1), or answered or taken back (-1), and tells the engine
// the size of the next batch. The engine calls it with its lock held.
func (x *gauge) counts(n int64, now time.Time) {
	outstanding := int(x.outstanding.Add(n))
	if x.restart.Swap(false) {
		x.pipeline = pipeline{since: now}
	}
	if n > 0 {
		x.pipeline = x.pipeline.sent(outstanding, now)
	} else if x.pipeline = x.pipeline.answered(outstanding, now); x.pipeline.isDue(outstanding) {
		x.pipeline = x.pipeline.look(now, x.roundTrip())
	}
	x.deepen()
}

func (x *gauge) roundTrip() time.Duration {
	if x.link == nil {
		return 0
	}
	return x.link.Measure().RTT
}

// deepen tells the engine how large its next batch is, so that it fills the pipeline.
func (x *gauge) deepen() {
	if x.peak != nil {
		target := x.pipeline.target
		if target == 0 {
			target = firstBatch(x.roundTrip())
		}
		*x.peak = (target + 1) / 2
	}
}
