// Package utp offers the uTP (BEP 29) socket API that github.com/anacrolix/torrent v1.62 asks for, on
// top of libutp (github.com/anacrolix/go-libutp), which version 1.61 of the engine used directly.
//
// The module that the engine names is not published everywhere at the commit it pins; braid's go.mod
// replaces it with this one. Only what the engine calls is here.
package utp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/anacrolix/go-libutp"
)

// Default names the implementation, for the engine's error messages.
const Default = "libutp"

// FirewallCallback reports whether an incoming connection from the address is to be refused.
type FirewallCallback func(net.Addr) bool

// Option configures a new socket.
type Option func(*options)

type options struct{ logger *slog.Logger }

// WithLogger sets the logger for what the adapter itself has to say. libutp's own log stays on its default.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// Socket is a uTP socket: it listens, dials, and hands datagrams that are not uTP to its PacketConn half.
type Socket interface {
	net.PacketConn
	Accept() (net.Conn, error)
	Addr() net.Addr
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
	SetFirewallCallback(FirewallCallback)
}

type socket struct{ *utp.Socket }

func (s socket) SetFirewallCallback(f FirewallCallback) {
	s.SetSyncFirewallCallback(utp.FirewallCallback(f))
}

// NewSocket binds a UDP socket for uTP. The result is nil whenever the error is not.
func NewSocket(network, addr string, opts ...Option) (Socket, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	s, err := utp.NewSocket(network, addr)
	if err != nil {
		if s != nil {
			s.Close()
		}
		return nil, err
	}
	if o.logger != nil {
		o.logger.Debug("uTP socket bound", "addr", s.Addr())
	}
	return socket{s}, nil
}

// NewSocketFromPacketConn is refused: libutp binds its own socket. The engine calls this only for
// sockets that are bound by a caller's own listen function, which braid does not use.
func NewSocketFromPacketConn(pc net.PacketConn, _ ...Option) (Socket, error) {
	return nil, fmt.Errorf("uTP on the existing socket %v: %w", pc.LocalAddr(), errors.ErrUnsupported)
}
