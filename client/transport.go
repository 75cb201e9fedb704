package client

import (
	"context"
	"time"

	"braid/client/wire"
	"braid/pathsel"
	"braid/scionnet"
)

// Transport carries path-level connections: SCION, QUIC on IP, TCP, or WebRTC. transport_test.go
// tests what holds for all transports.
type Transport interface {
	dialler
	// Reaches tells whether the peer is reached over this transport.
	Reaches(Peer) bool
	// Hint tells what others have received over paths; see scionnet.Host.Hint.
	Hint(pathsel.Hints)
	// Accept waits for the next connection that a peer opens. It does not return temporary errors.
	Accept(context.Context) (Wire, error)
	// Listening are the addresses that peers may dial.
	Listening() []Peer
	// Close ends all connections.
	Close() error
}

// dialler opens path-level connections: a Transport, or the web seeds of a transfer. If the network
// chooses the path, there is one path, with an empty fingerprint.
type dialler interface {
	// Name is the name of the transport for users: "scion", "quic", "tcp", "webrtc" or "http".
	Name() string
	// Paths are the paths to the peer, the best known first.
	Paths(context.Context, Peer) ([]pathsel.Path, error)
	// Watch returns a channel that receives a value whenever the paths to the peer change. It ends
	// with cancel. The channel is nil if the paths never change.
	Watch(Peer) (changes <-chan struct{}, cancel func())
	// Abandoned tells whether the peer's address is one of this host at which nothing listens.
	Abandoned(Peer) bool
	// Revoked is when the network last said that the path does not work; zero: it has not said so.
	Revoked(pathsel.Path) time.Time
	// Dial connects over one path. It refuses a peer with another key than want; nil allows any
	// key.
	Dial(ctx context.Context, p Peer, path pathsel.Path, want *scionnet.PeerKey) (Wire, error)
}

// routes are the paths to peers. On IP the network chooses the path, so there is one path that
// never changes.
type routes struct{ host *scionnet.Host } // nil: not on SCION

func (r routes) Paths(ctx context.Context, p Peer) ([]pathsel.Path, error) {
	if a, ok := p.SCION(); ok {
		return r.host.Paths(ctx, a.IA)
	}
	return []pathsel.Path{{}}, nil
}

func (r routes) Watch(p Peer) (<-chan struct{}, func()) {
	if a, ok := p.SCION(); ok {
		return r.host.Subscribe(a.IA)
	}
	return nil, func() {}
}

func (r routes) Revoked(p pathsel.Path) time.Time {
	if r.host == nil {
		return time.Time{}
	}
	at, _ := r.host.Revoked(p)
	return at.At
}

func (r routes) Hint(h pathsel.Hints) {
	if r.host != nil {
		r.host.Hint(h)
	}
}

// rtcName is the name of the transport WebRTC.
const rtcName = "webrtc"

// maxAccepted bounds the accepted connections of a transport.
const maxAccepted = 1024

// Wire is one live connection over one path.
type Wire interface {
	wire.Conn
	// Peer is the address of the other side, as far as the transport shows it. On SCION it is only
	// claimed until Origin is proven.
	Peer() Peer
}

// remote is the part of a Wire that a transport knows from the beginning.
type remote struct {
	peer      Peer
	path      pathsel.Path
	key       *scionnet.PeerKey // nil: none
	handshake time.Duration     // how long it took
}

func (r *remote) Peer() Peer             { return r.peer }
func (r *remote) Path() pathsel.Path     { return r.path }
func (r *remote) Key() *scionnet.PeerKey { return r.key }
func (r *remote) Origin() pathsel.Origin { return originOf(r.peer, r.key) }

// Measurement is what a transport knows of a connection. What it does not know is zero.
type Measurement = wire.Measurement
