// Package utp stands in for the uTP sockets (BEP 29) of github.com/anacrolix/torrent, and opens
// none.
//
// braid speaks TCP and QUIC, and switches the engine's uTP off. The engine links its uTP library
// all the same: a C++ library that needs a compiler for every operating system and ends up in the
// program. braid's go.mod replaces it with this package. Only what the engine calls is here.
package utp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
)

// Default names the implementation, for the engine's error messages.
const Default = "uTP"

type (
	// FirewallCallback reports whether an incoming connection from the address is to be refused.
	FirewallCallback func(net.Addr) bool
	// Option configures a new socket.
	Option func()
	// Socket is a uTP socket, of which there are none.
	Socket interface {
		net.PacketConn
		Accept() (net.Conn, error)
		Addr() net.Addr
		DialContext(ctx context.Context, network, addr string) (net.Conn, error)
		SetFirewallCallback(FirewallCallback)
	}
)

// WithLogger has no effect.
func WithLogger(*slog.Logger) Option { return func() {} }

// NewSocket fails with an error that wraps errors.ErrUnsupported.
func NewSocket(network, addr string, _ ...Option) (Socket, error) {
	return nil, fmt.Errorf("uTP on %s %s: %w", network, addr, errors.ErrUnsupported)
}

// NewSocketFromPacketConn fails like NewSocket.
func NewSocketFromPacketConn(pc net.PacketConn, _ ...Option) (Socket, error) {
	return nil, fmt.Errorf("uTP on socket %v: %w", pc.LocalAddr(), errors.ErrUnsupported)
}
