package client

import (
	"net"
	"time"
)

// stillborn is a connection that could not be made. The engine gets it in place of an error: told that an address
// cannot be dialled, it asks connected peers to arrange a meeting (hole punching, BEP 55) with an address that
// nobody else knows, and panics because ours has no IP and port in its eyes. A connection that fails at
// once, it drops.
type stillborn struct{ err error }

var _ net.Conn = stillborn{}

func (s stillborn) Read([]byte) (int, error)  { return 0, s.err }
func (s stillborn) Write([]byte) (int, error) { return 0, s.err }
func (stillborn) Close() error                { return nil }
func (stillborn) LocalAddr() net.Addr         { return face{} }
func (stillborn) RemoteAddr() net.Addr        { return face{} }

// The engine takes an error of these for a bug of its own.
func (stillborn) SetDeadline(time.Time) error      { return nil }
func (stillborn) SetReadDeadline(time.Time) error  { return nil }
func (stillborn) SetWriteDeadline(time.Time) error { return nil }
