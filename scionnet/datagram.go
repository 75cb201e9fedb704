package scionnet

import (
	"context"
	"errors"
	"net"
	"time"

	"braid/pathsel"
)

// Datagrams sends and receives SCION/UDP packets without QUIC, through the same packet I/O as an
// endpoint. Its throughput is the most that an endpoint could reach. Nothing is retransmitted,
// ordered, encrypted or paced.
type Datagrams struct {
	host  *Host
	conn  packetConn
	local Addr
}

// OpenDatagrams opens a free port.
func (h *Host) OpenDatagrams(ctx context.Context) (*Datagrams, error) {
	d, err := h.OpenMessages(ctx, 0)
	if err != nil {
		return nil, err
	}
	d.conn.takeAllFrames()
	return d, nil
}

// OpenMessages opens a port for single messages of strangers; 0 is any free one. Unlike
// OpenDatagrams, it takes no bundles, which cost the receiver more than the sender.
func (h *Host) OpenMessages(ctx context.Context, port uint16) (*Datagrams, error) {
	if err := h.mayListen(port); err != nil {
		return nil, err
	}
	c, err := openFast(ctx, h, port)
	if err != nil {
		return nil, err
	}
	return &Datagrams{h, c, h.addrOf(c)}, nil
}

// SendOver sends one payload along a path that the host has found before. Unlike with Route,
// nothing is kept for the remote.
func (d *Datagrams) SendOver(ctx context.Context, b []byte, remote Addr, path pathsel.Path) error {
	f, err := d.host.resolvePath(ctx, remote, path)
	if err != nil {
		return err
	}
	if len(b) > min(f.path.MTU-f.way.headerLen(d.local, remote), mostPacket) {
		return errors.New("the path's MTU has no room for the message")
	}
	r := d.host.routes.dial(remote, f.trail, f.way)
	defer d.host.routes.unpin(r)
	return d.Send(b, len(b), r.pseudo)
}

// Sender returns the sender of a packet that was received from an address, and whether its ISD-AS
// is proven: the packet's way back leads to that AS. An unproven ISD-AS is only claimed.
func (d *Datagrams) Sender(from net.Addr) (a Addr, proven, ok bool) {
	r := d.host.routes.forAddr(from)
	if r == nil {
		return Addr{}, false, false
	}
	return r.remote, r.proven.Load(), true
}

// Addr is the address to which others send.
func (d *Datagrams) Addr() Addr { return d.conn.mapper().public(d.local) }

// Route returns an address for Send, along which packets to remote follow the path, and the largest
// payload size for Send. The route stays until the host closes.
func (d *Datagrams) Route(ctx context.Context, remote Addr, path pathsel.Path) (net.Addr, int, error) {
	f, err := d.host.resolvePath(ctx, remote, path)
	if err != nil {
		return nil, 0, err
	}
	room := f.path.MTU - f.way.headerLen(d.local, remote)
	if room <= 0 {
		return nil, 0, errors.New("the path's MTU has no room for a payload")
	}
	return d.host.routes.dial(remote, f.trail, f.way).pseudo, min(room, mostPacket), nil
}

// Large lets several payloads travel in one SCION packet of up to mtu bytes (bundle.go). The
// receiver must be a Datagrams, and the path must carry such packets: neither is checked.
func (d *Datagrams) Large(to net.Addr, mtu int) {
	if r := d.host.routes.forAddr(to); r != nil {
		r.large.limit.Store(int32(max(0, mtu-r.headerLen(d.local))))
	}
}

// Send sends payloads of that size, which stand one after the other in b; the last may be smaller.
// Bit 6 of each payload's first byte must be set, as in every QUIC packet.
func (d *Datagrams) Send(b []byte, size int, to net.Addr) error {
	return d.conn.write(b, to, size)
}

// Receive reads one payload. from is an address for Send; answers to it take the same way back.
func (d *Datagrams) Receive(b []byte) (n int, from net.Addr, err error) { return d.conn.ReadFrom(b) }

// SetReadDeadline sets the deadline for Receive; the error is os.ErrDeadlineExceeded.
func (d *Datagrams) SetReadDeadline(t time.Time) error { return d.conn.SetReadDeadline(t) }

// Close frees the port.
func (d *Datagrams) Close() error { return d.conn.Close() }
