package client

import (
	"log/slog"
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
	carried   atomic.Int64 // Unix ns of the last look at which it had carried new data; 0: never

	// The other fields are notes of parts of the transfer, each for itself.
	barred    bool  // of server: uploads are held back
	data      int64 // of peerSet: bytes of the torrent that it had carried at the last look
	shown     bool  // of superSeeder: the peer was told of the pieces that were revealed before
	whole     bool  // of superSeeder: the peer was told of all pieces
	described bool  // of nudger: the filter knows the number of pieces
}

func newLink(l *wire.Link, below Wire, transport string, at engineAddr) *link {
	return &link{Link: l, below: below, transport: transport, addr: at}
}

// Peer is the address of the other side, as far as the transport shows it.
func (l *link) Peer() Peer { return l.below.Peer() }

// log returns a logger that names the connection.
func (l *link) log(log *slog.Logger) *slog.Logger {
	return log.With("peer", l.Peer(), "path", l.Path().Fingerprint.Short())
}

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

// addrOfAccepted is the engine address of an accepted connection. If there is a key, the address is
// made of the key: the peer may only claim the address of its host, and the engine must not ban
// the real owner.
func addrOfAccepted(w Wire) netip.Addr {
	if k := w.Key(); k != nil {
		return engineAddrNamed("key " + string(k[:]))
	}
	return engineAddrOf(w.Peer())
}
