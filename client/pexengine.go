package client

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/metainfo"
	pp "github.com/anacrolix/torrent/peer_protocol"
)

// exchanges are the torrents of a session that take part in peer exchange.
type exchanges struct {
	on     atomic.Bool
	byHash sync.Map // metainfo.Hash to exchange
}

// exchange is how a torrent takes part.
type exchange struct {
	// extensions are the extensions that we offer on a connection over a transport.
	extensions func(transport string) *torrent.LocalLtepProtocolMap
	// heard is called with each message, with the engine's lock held. It must not block.
	heard func(from engineAddr, payload []byte)
}

// Peers number their messages by the place of the extension in these lists, from 1 (BEP 10).
const (
	firstExchange = metadataExtension + 1
	lastExchange  = metadataExtension + int(pexKinds)
)

// install connects the engine's callbacks with the torrents. It must follow fetches.install. The
// callbacks run with the engine's lock held.
func (s *exchanges) install(c *torrent.Callbacks, g *gauges) {
	c.PeerConnAdded = append(c.PeerConnAdded, func(p *torrent.PeerConn) {
		x, ok := s.byHash.Load(p.Torrent().InfoHash())
		if y := g.of(&p.Peer); ok && s.on.Load() && y != nil && y.link != nil {
			p.LocalLtepProtocolMap = x.(exchange).extensions(y.link.transport)
		}
	})
	next := c.ReadExtendedHandshake
	c.ReadExtendedHandshake = func(p *torrent.PeerConn, m *pp.ExtendedHandshakeMessage) {
		next(p, m)
		if y := g.of(&p.Peer); y != nil {
			y.greeted(m)
		}
	}
	c.PeerConnReadExtensionMessage = append(c.PeerConnReadExtensionMessage, s.onExtension)
}

// onExtension hands a message of peer exchange to its torrent.
func (s *exchanges) onExtension(e torrent.PeerConnReadExtensionMessageEvent) {
	if n := int(e.ExtensionNumber); n < firstExchange || n > lastExchange || len(e.Payload) > maxPEX {
		return
	}
	from, isAddr := e.PeerConn.RemoteAddr.(engineAddr)
	if x, ok := s.byHash.Load(metainfo.Hash(e.PeerConn.Torrent().InfoHash())); ok && isAddr {
		x.(exchange).heard(from, slices.Clone(e.Payload))
	}
}

// greeted notes what a peer has said in its extended handshake.
func (x *gauge) greeted(m *pp.ExtendedHandshakeMessage) {
	for kind, name := range pexNames {
		x.exchanges[kind].Store(m.M[name] != 0)
	}
	if m.Port > 0 && m.Port < 1<<16 {
		x.port.Store(uint32(m.Port))
	}
}
