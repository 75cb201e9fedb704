//go:build !linux

package server

import (
	"net"
	"net/netip"

	"braid/tracker/wire"
)

// ports are a socket that several goroutines serve.
type ports struct{ conn *net.UDPConn }

func newPorts(c *net.UDPConn) (*ports, error) { return &ports{c}, nil }

// port fetches and sends one packet after the other. It is for one goroutine.
type port struct {
	conn    *net.UDPConn
	in, out []byte
	got     int // bytes received; -1: next has given them
	from    netip.AddrPort
}

// open makes a port. How many packets it is to fetch at a time is of no use here.
func (s *ports) open(int) *port {
	return &port{conn: s.conn, in: make([]byte, wire.MaxUDPRequest+1), out: make([]byte, 0, wire.MaxUDP)}
}

// receive waits for a packet.
func (p *port) receive() (err error) {
	p.got, p.from, err = p.conn.ReadFromUDPAddrPort(p.in)
	return err
}

// next is the packet, and who has sent it.
func (p *port) next() ([]byte, netip.AddrPort, bool) {
	n := p.got
	p.got = -1
	return p.in[:max(n, 0)], netip.AddrPortFrom(p.from.Addr().Unmap(), p.from.Port()), n >= 0
}

// space is for one answer, which add takes.
func (p *port) space() []byte { return p.out[:0] }

// add sends an answer that was put into the space.
func (p *port) add(to netip.AddrPort, b []byte) {
	_, _ = p.conn.WriteToUDPAddrPort(b, to) // it is lost, as packets are
}

func (p *port) send() {}
