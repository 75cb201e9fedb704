package client

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/metainfo"
	pp "github.com/anacrolix/torrent/peer_protocol"
)

// callbacks are called by the engine, for the gauge of a connection or the transfer of its torrent.
// The engine holds its lock meanwhile, except in CompletedHandshake, so they must not wait.
//
// They are not methods of common: then the compiler would compile the engine's generic types again
// in each package that uses Session, which takes six seconds (TestEngineStaysInside).
type callbacks struct{ *common }

// list says which callback of the engine goes where.
func (c callbacks) list() torrent.Callbacks {
	type event = torrent.PeerRequestEvent
	return torrent.Callbacks{
		CompletedHandshake:           c.handshaken,
		PeerConnAdded:                []func(*torrent.PeerConn){c.connAdded},
		ReadExtendedHandshake:        c.extendedHandshake,
		PeerConnReadExtensionMessage: []func(torrent.PeerConnReadExtensionMessageEvent){c.extended},
		ReadMessage:                  c.message,
		SentRequest:                  []func(event){func(e event) { c.count(e.Peer, 1) }},
		DeletedRequest:               []func(event){func(e event) { c.count(e.Peer, -1) }},
		ReceivedUsefulData:           []func(torrent.ReceivedUsefulDataEvent){c.usefulBlock},
		PeerClosed:                   []func(*torrent.Peer){c.connClosed},
	}
}

// transfer is the transfer of the torrent; nil if there is none.
func (c *common) transfer(hash metainfo.Hash) *Transfer {
	t, _ := c.transfers.Load(hash)
	found, _ := t.(*Transfer)
	return found
}

// handshaken is called when both sides have named a torrent. Until then, nobody knows for which
// torrent an accepted connection is.
func (c callbacks) handshaken(p *torrent.PeerConn, hash metainfo.Hash) {
	t := c.transfer(hash)
	at, _ := p.RemoteAddr.(engineAddr)
	l := c.offers.linkAt(at)
	if l == nil {
		return // the connection has ended meanwhile
	}
	if t == nil {
		if l.accepted { // for the v2 hash of a hybrid, which the engine knows
			l.Close()
		}
		return
	}
	l.Filter.UseDisk(t.store)
	l.LimitBy(t.loop.options.Limiter)
	if t.conceals.Load() {
		t.do(func() {
			if t.hasAll() { // a download shares the pieces that it has, like any other
				l.Filter.Conceal() // next, the engine would tell the peer its pieces
			}
		})
	}
	if !l.accepted {
		t.inbox.put(func() { t.loop.connector.onGreeted(l) })
		return
	}
	l.Greet()
	t.inbox.put(func() { t.loop.connector.onAccepted(l) })
}

// connAdded makes the gauge of a connection, and chooses the extensions that it offers to the peer.
func (c callbacks) connAdded(p *torrent.PeerConn) {
	if c.cfg.MaxRequests > 0 {
		p.PeerMaxRequests = c.cfg.MaxRequests
	}
	p.LocalLtepProtocolMap = metadataOnly
	at, _ := p.RemoteAddr.(engineAddr)
	l := c.offers.linkAt(at)
	if l == nil {
		return // the connection has ended meanwhile
	}
	x := &gauge{conn: anacrolixConn{p}, link: l, peak: peakRequests(&p.Peer)}
	x.deepen()
	c.gauges.byPeer.Store(&p.Peer, x)
	l.gauge.Store(x)
	if t := c.transfer(p.Torrent().InfoHash()); t != nil && c.pex.Load() && !t.isPrivate() {
		p.LocalLtepProtocolMap = t.loop.exchanger.extensions(l.transport)
	}
}

func (c callbacks) connClosed(p *torrent.Peer) {
	c.gauges.byPeer.Delete(p)
	if conn, ok := p.TryAsPeerConn(); ok && p.Torrent() != nil {
		if t, f := c.fetchingOf(conn); f != nil {
			t.inbox.put(func() { f.leave(conn) })
		}
	}
}

// fetchingOf is the transfer of the torrent, with the fetch of its description; nil: it is known.
func (c callbacks) fetchingOf(p *torrent.PeerConn) (*Transfer, *metadata) {
	t := c.transfer(p.Torrent().InfoHash())
	if t == nil {
		return nil, nil
	}
	return t, t.fetching.Load()
}

// extendedHandshake reads a peer's extended handshake (BEP 10). Its reqq is the number of
// outstanding requests that the peer accepts. The engine sees one less, since Transmission before
// 4.0 rejects the last of them, ten seconds later.
func (c callbacks) extendedHandshake(p *torrent.PeerConn, m *pp.ExtendedHandshakeMessage) {
	if m.Reqq > 1 {
		m.Reqq--
	}
	if c.cfg.MaxRequests > 0 {
		m.Reqq = min(cmp.Or(m.Reqq, c.cfg.MaxRequests), c.cfg.MaxRequests)
	}
	x := c.gauge(&p.Peer)
	if x != nil {
		x.greeted(m)
	}
	if t, f := c.fetchingOf(p); f != nil {
		if size := m.MetadataSize; x != nil && m.M[pp.ExtensionNameMetadata] != 0 {
			t.inbox.put(func() { f.offer(p, x.link.addr.host, size) })
		}
		m.MetadataSize = 0 // so that the engine asks for nothing
	}
}

// extended takes a message of an extension (BEP 10), which comes under the number that
// exchanger.extensions has given it.
func (c callbacks) extended(e torrent.PeerConnReadExtensionMessageEvent) {
	p, n := e.PeerConn, int(e.ExtensionNumber)
	if n == metadataExtension {
		c.extendedMetadata(p, e.Payload)
		return
	}
	t, x := c.transfer(p.Torrent().InfoHash()), c.gauge(&p.Peer)
	isPEX := metadataExtension < n && n <= metadataExtension+int(pexKinds)
	if isPEX && len(e.Payload) <= maxPEX && t != nil && x != nil {
		payload := slices.Clone(e.Payload)
		t.inbox.put(func() { t.loop.exchanger.onMessage(x.link, payload) })
	}
}

// extendedMetadata takes a message of the metadata extension (BEP 9). Once the engine has the
// description, it gets the requests of peers. It never gets pieces, even late ones: it would drop
// their senders, since it has not asked for them.
func (c callbacks) extendedMetadata(p *torrent.PeerConn, payload []byte) {
	x, data, err := parseMetadata(payload)
	if t, f := c.fetchingOf(p); f != nil {
		if err == nil {
			x.peer = p
			// Data that is too long stays so.
			data = bytes.Clone(data[:min(len(data), metadataPiece+1)])
			t.inbox.put(func() { t.loop.describer.onMessage(x, data) })
		}
		return
	}
	p.LocalLtepProtocolMap = metadataByUs
	if err == nil && x.kind == metadataRequest {
		p.LocalLtepProtocolMap = metadataByEngine
	}
}

// count counts a request that was sent (1), or answered or taken back (-1). The engine calls it
// with its lock held, so count may also set the engine's grace. There is only one for all torrents,
// but the engine usually goes on with requests of the same torrent.
func (c callbacks) count(p *torrent.Peer, n int64) {
	*c.gauges.grace = stealGrace
	if x := c.gauge(p); x != nil {
		*c.gauges.grace = max(stealGrace, time.Duration(x.grace.Load()))
		x.counts(n, time.Now())
	}
}

func (c callbacks) gauge(p *torrent.Peer) *gauge {
	x, _ := c.gauges.byPeer.Load(p)
	found, _ := x.(*gauge)
	return found
}

func (c callbacks) message(p *torrent.PeerConn, m *pp.Message) {
	x := c.gauge(&p.Peer)
	if m.Keepalive || x == nil {
		return
	}
	switch m.Type {
	case pp.Choke, pp.Unchoke:
		x.unchoked.Store(m.Type == pp.Unchoke)
	case pp.Port:
		x.node.Store(uint32(m.Port))
	case pp.Have, pp.Bitfield, pp.HaveAll, pp.Request: // for superSeeder
		t := c.transfer(p.Torrent().InfoHash())
		if t == nil || !t.conceals.Load() {
			return
		}
		if d := t.described.Load(); d != nil && x.news.note(m, d.Layout.Pieces()) {
			t.inbox.touch()
		}
	}
}

func (c callbacks) usefulBlock(e torrent.ReceivedUsefulDataEvent) {
	x, t := c.gauge(e.Peer), c.transfer(e.Peer.Torrent().InfoHash())
	if x != nil && t != nil {
		m := e.Message
		t.blame.received(int(m.Index), int(m.Begin), len(m.Piece), suspectOf(x.link.Origin()))
	}
}
