package client

import (
	"sync/atomic"

	"braid/client/wire"
	"braid/pathsel"
)

// link is a connection to a peer, dialled or accepted. The engine sees the wire.Link in it.
type link struct {
	*wire.Link
	below     Wire // the transport's
	transport string
	face      face
	carried   atomic.Int64 // Unix ns when it was last seen to have carried data of the torrent; 0: never

	barred bool  // held back; belongs to Transfer.serve
	data   int64 // bytes of the torrent that it has carried, at the last look; belongs to Transfer.measure
	shown  bool  // told of what was revealed to its peer before; belongs to Transfer.reveal
	whole  bool  // told of everything; likewise

	described bool // its filter knows the number of pieces; belongs to Transfer.tellPieces
}

func newLink(l *wire.Link, below Wire, transport string, f face) *link {
	return &link{Link: l, below: below, transport: transport, face: f}
}

// Peer is the address of the other side, as far as the transport shows it.
func (l *link) Peer() Peer { return l.below.Peer() }

// Proven tells whether the peer is at that address, and does not only say so.
func (l *link) Proven() bool { return l.below.Proven() }

// originWire adds to a transport's connection what package wire wants to know: where it comes from.
type originWire struct{ Wire }

func (w originWire) Origin() pathsel.Origin { return originOf(w.Wire) }
