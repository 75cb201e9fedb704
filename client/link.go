package client

import (
	"net/netip"
	"sync/atomic"

	"braid/client/wire"
	"braid/pathsel"
)

// link is a connection to a peer, dialled or accepted. The engine sees the wire.Link in it.
type link struct {
	*wire.Link
	below     Wire // the transport's
	transport string
	addr      engineAddr
	accepted  bool         // the peer has opened it
	carried   atomic.Int64 // Unix ns when it was last seen to have carried data of the torrent; 0: never

	barred    bool  // uploads are held back; belongs to server
	data      int64 // bytes of the torrent that it has carried, at the last look; belongs to peerSet
	shown     bool  // the peer was told of the pieces revealed to it before; belongs to superSeeder
	whole     bool  // the peer was told of all pieces; likewise
	described bool  // the filter knows the number of pieces; belongs to nudger
}

func newLink(l *wire.Link, below Wire, transport string, f engineAddr) *link {
	return &link{Link: l, below: below, transport: transport, addr: f}
}

// Peer is the address of the other side, as far as the transport shows it.
func (l *link) Peer() Peer { return l.below.Peer() }

// Proven tells whether the peer is at that address, and does not only say so.
func (l *link) Proven() bool { return l.below.Proven() }

// originWire adds to a transport's connection what package wire wants to know: where it comes from.
type originWire struct{ Wire }

func (w originWire) Origin() pathsel.Origin { return originOf(w.Wire) }

// originOf is where a connection comes from: see pathsel.Origin. It changes at most once, when a
// claimed ISD-AS is proven.
func originOf(w Wire) pathsel.Origin {
	key := ""
	if k := w.Key(); k != nil {
		key = string(k[:])
	}
	if !w.Proven() {
		return pathsel.OriginUnproven(key)
	}
	o := w.Peer().origin()
	o.Key = key
	return o
}

// addrOfAccepted is the engine address of an accepted connection. It is made of the key, if there
// is one: the host's address may belong to somebody else, whom the engine must not ban.
func addrOfAccepted(w Wire) netip.Addr {
	if k := w.Key(); k != nil {
		return engineAddrNamed("key " + string(k[:]))
	}
	return engineAddrOf(w.Peer())
}
