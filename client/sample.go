package client

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/anacrolix/torrent"
	pp "github.com/anacrolix/torrent/peer_protocol"

	"braid/pathsel"
)

// sampleEvery is the time between two looks at the connections, and between two decisions. Slower, and a dead path is
// noticed late; faster, and nothing has happened meanwhile.
const sampleEvery = 200 * time.Millisecond

// gauge is what the engine does on one connection and does not tell when asked: it is counted as it happens.
type gauge struct {
	conn        *torrent.PeerConn
	link        *link        // nil: it has ended meanwhile
	outstanding atomic.Int64 // requests sent, neither answered nor taken back
	unchoked    atomic.Bool  // the peer serves us

	mu   sync.Mutex
	says []said // of pieces, where somebody wants to know: see gauges.watch
}

// said is what a peer says of a piece: that it has it, or by asking for a part of it that it is about to.
type said struct {
	piece int
	has   bool
}

// maxSaid bounds what waits to be looked at. What a peer says beyond it is forgotten: only that it has pieces counts for
// long, and it cannot honestly say that so often between two looks.
const maxSaid = 1 << 16

func (x *gauge) note(s said) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(x.says); n < maxSaid && (n == 0 || x.says[n-1] != s) {
		x.says = append(x.says, s)
	}
}

// take returns what was said since the last time.
func (x *gauge) take() []said {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.says
	x.says = nil
	return s
}

// gauges of all connections by their face. The engine calls most of this with its lock held.
type gauges struct {
	byFace  sync.Map
	watched sync.Map // *torrent.Torrent to a function: see watch
	blames  sync.Map // *torrent.Torrent to *blame
}

// install has the engine tell the gauges. linkAt is the connection behind a face.
func (g *gauges) install(c *torrent.Callbacks, linkAt func(face) *link) {
	c.PeerConnAdded = append(c.PeerConnAdded, func(p *torrent.PeerConn) {
		if f, ok := p.RemoteAddr.(face); ok {
			g.byFace.Store(f, &gauge{conn: p, link: linkAt(f)})
		}
	})
	c.PeerClosed = append(c.PeerClosed, func(p *torrent.Peer) {
		if x := g.of(p); x != nil {
			g.byFace.CompareAndDelete(p.RemoteAddr, x) // unless a new connection has the face by now
		}
	})
	c.ReceivedUsefulData = append(c.ReceivedUsefulData, func(e torrent.ReceivedUsefulDataEvent) {
		if x := g.of(e.Peer); x != nil && x.link != nil {
			if b, ok := g.blames.Load(x.conn.Torrent()); ok {
				b.(*blame).received(int(e.Message.Index), int(e.Message.Begin), suspectOf(x.link.origin()))
			}
		}
	})
	c.SentRequest = append(c.SentRequest, func(e torrent.PeerRequestEvent) { g.count(e.Peer, 1) })
	c.DeletedRequest = append(c.DeletedRequest, func(e torrent.PeerRequestEvent) { g.count(e.Peer, -1) })
	c.ReadMessage = func(p *torrent.PeerConn, m *pp.Message) {
		if m.Keepalive {
			return
		}
		switch m.Type {
		case pp.Choke, pp.Unchoke:
			if x := g.of(&p.Peer); x != nil {
				x.unchoked.Store(m.Type == pp.Unchoke)
			}
		case pp.Have, pp.Bitfield, pp.HaveAll, pp.Request:
			g.heard(p, m)
		}
	}
}

// watch has what peers say of their pieces kept, for gauge.take, until it is called with nil. News of pieces that a peer has got
// are told at once, with the engine's lock held: do not block.
func (g *gauges) watch(t *torrent.Torrent, news func()) {
	if news == nil {
		g.watched.Delete(t)
		return
	}
	g.watched.Store(t, news)
}

func (g *gauges) heard(p *torrent.PeerConn, m *pp.Message) {
	news, ok := g.watched.Load(p.Torrent())
	x := g.of(&p.Peer)
	if !ok || x == nil {
		return
	}
	switch m.Type {
	case pp.Request:
		x.note(said{piece: int(m.Index)})
		return
	case pp.Have:
		x.note(said{int(m.Index), true})
	case pp.Bitfield:
		for i, has := range m.Bitfield {
			if has {
				x.note(said{i, true})
			}
		}
	case pp.HaveAll:
		x.note(said{allPieces, true})
	}
	news.(func())()
}

// allPieces stands for every piece in said.
const allPieces = -1

func (g *gauges) count(p *torrent.Peer, n int64) {
	if x := g.of(p); x != nil {
		x.outstanding.Add(n)
	}
}

func (g *gauges) of(p *torrent.Peer) *gauge {
	f, ok := p.RemoteAddr.(face)
	if !ok {
		return nil
	}
	if x := g.find(f); x != nil && &x.conn.Peer == p {
		return x
	}
	return nil
}

func (g *gauges) find(f face) *gauge {
	x, ok := g.byFace.Load(f)
	if !ok {
		return nil
	}
	return x.(*gauge)
}

// sample measures a path-level peer for the selector.
func (t *Transfer) sample(s *pathState, now time.Time) {
	c := &s.candidate
	c.BytesRead, _ = s.bytes()
	c.Outstanding = 0
	x := pathsel.Sample{At: now, State: c.State, Choked: true, BytesRead: c.BytesRead}
	if s.link != nil {
		s.seen = s.link.Measure()
		c.RTT = s.seen.RTT
		x.RTT, x.RTTVar = s.seen.RTT, s.seen.RTTVar
		x.PacketsSent, x.PacketsLost, x.PacketsReceived = s.seen.PacketsSent, s.seen.PacketsLost, s.seen.PacketsReceived
		if g := t.session.gauges.find(s.link.face); g != nil {
			st := g.conn.Stats()
			s.delivered = s.delivered || st.BytesReadUsefulData.Int64() > 0
			x.Wasted = uint64(max(0, st.BytesReadData.Int64()-st.BytesReadUsefulData.Int64()))
			x.Choked = !g.unchoked.Load()
			x.Outstanding = int(max(0, g.outstanding.Load()))
			c.Outstanding = x.Outstanding
		}
	}
	s.meter, s.silence = s.meter.Add(x), s.silence.Add(x)
	c.Slots, c.Silent, c.Quiet = s.meter.Slots, s.silence.Silent(), s.silence.Quiet()
}
