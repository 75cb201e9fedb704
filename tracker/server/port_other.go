//go:build !linux

package server

import (
	"net"
	"net/netip"

	"braid/tracker/wire"
)

// ports is a socket that several goroutines serve.
type ports struct{ conn *net.UDPConn }

func newPorts(c *net.UDPConn) (*ports, error) { return &ports{c}, nil }

// port fetches and sends packets one by one. Each goroutine needs one of its own.
type port struct {
	conn    *net.UDPConn
	in, out []byte
	got     int // bytes received; -1: next has returned them
	from    netip.AddrPort
}

// open makes a port. It ignores the size of a batch.
func (s *ports) open(int) *port {
	return &port{conn: s.conn, in: make([]byte, wire.MaxUDPRequest+1), out: make([]byte, 0, wire.MaxUDP)}
}

func (p *port) receive() (err error) {
	p.got, p.from, err = p.conn.ReadFromUDPAddrPort(p.in)
	return err
}

func (p *port) next() ([]byte, netip.AddrPort, bool) {
	n := p.got
	p.got = -1
	return p.in[:max(n, 0)], netip.AddrPortFrom(p.from.Addr().Unmap(), p.from.Port()), n >= 0
}

func (p *port) space() []byte { return p.out[:0] }

// add sends the answer that was written into the space. An answer that cannot be sent is lost, as
// packets can be.
func (p *port) add(to netip.AddrPort, b []byte) { _, _ = p.conn.WriteToUDPAddrPort(b, to) }

func (p *port) send() {}
