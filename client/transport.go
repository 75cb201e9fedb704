package client

import (
	"context"
	"net"
	"time"

	"braid/client/wire"
	"braid/pathsel"
	"braid/scionnet"
)

// Transport carries path-level connections: SCION, QUIC on IP, TCP. transport_test.go says what holds for all. Where the
// network chooses the way there is one path, with an empty fingerprint.
type Transport interface {
	// Name of the transport, for people: "scion", "quic", "tcp".
	Name() string
	// Serves tells whether the peer is reached over this transport.
	Serves(Peer) bool
	// Paths are those to the peer, best known first.
	Paths(context.Context, Peer) ([]pathsel.Path, error)
	// Watch gives a channel with a note whenever the paths to the peer have changed, until cancel is called.
	Watch(Peer) (changes <-chan struct{}, cancel func())
	// Abandoned tells whether the peer's address is one of this host at which nothing listens.
	Abandoned(Peer) bool
	// Revoked is when the network last said that the path does not work; zero if it has not.
	Revoked(pathsel.Path) time.Time
	// Dial connects over one path. A peer whose key is not want is refused; nil is for the first connection.
	Dial(ctx context.Context, p Peer, path pathsel.Path, want *scionnet.PeerKey) (Wire, error)
	// Accept waits for the next connection of another. It does not return errors that pass by themselves.
	Accept(context.Context) (Wire, error)
	// Listening are the addresses that others may dial.
	Listening() []Peer
	// Close ends all connections.
	Close() error
}

// Wire is one live connection over one path.
type Wire interface {
	net.Conn
	// Peer is the address of the other side, as far as the transport shows it.
	Peer() Peer
	// Path is the connection's path as far as it is known by now.
	Path() pathsel.Path
	// Key is what the peer has proved to have; nil where a transport has no keys.
	Key() *scionnet.PeerKey
	// Proven tells whether the peer is at Peer, and not only says so. It may become true later.
	Proven() bool
	Measure() Measurement
}

// Measurement is what a transport knows of a connection. What it does not know is zero.
type Measurement = wire.Measurement
