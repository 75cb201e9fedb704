package scionnet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/private/common"
	"github.com/scionproto/scion/pkg/slayers/path/empty"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
	"github.com/scionproto/scion/pkg/snet"

	"braid/pathsel"
)

// packetConn is the layer between QUIC and SCION, with pseudo addresses above and SCION packets
// below. Beside net.PacketConn, it promises:
//
//   - Every address that it takes or returns is the pseudo address of a route of the host. Packets
//     follow the route's current way.
//   - SCMP messages go to the host, never up to QUIC.
//   - An error means that the socket is closed or a deadline has passed. On any other error quic-go
//     would give up all connections, so a packet that cannot be sent or parsed counts as lost.
//
// quic-go looks for further methods (SyscallConn, ReadMsgUDP, WriteMsgUDP, ReadBatch), and uses
// offloading and batches if it finds them. fastConn has them all, plainConn none.
type packetConn interface {
	net.PacketConn
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
	// mapper knows at which addresses routers see the socket; nil in mode off.
	mapper() *mapper
	// features are the feature bits of what it understands (bundle.go).
	features() byte
	// probe sends the probe that is due on the route, if any, to find out whether large packets
	// pass; lossy says that packets were lost recently, roundTrip is as in nextProbe.
	probe(r *route, lossy bool, roundTrip time.Duration)
	// write sends b: payloads of that size, of which the last may be smaller.
	write(b []byte, to net.Addr, size int) error
	// takeAllFrames accepts frames from anybody, since Datagrams has no connections.
	takeAllFrames()
}

// packetIO opens the packet connection of an endpoint at a port; 0 is any free one.
type packetIO func(ctx context.Context, h *Host, port uint16) (packetConn, error)

// plainConn is the packetConn on plain snet, with one system call and several allocations per
// packet.
type plainConn struct {
	raw *rawConn // not embedded: quic-go would find its methods and go past snet

	// Only one goroutine reads.
	in      snet.Packet
	from    netip.AddrPort
	scratch []byte

	out sync.Pool // of *outPacket
}

type outPacket struct {
	pkt  snet.Packet
	path []byte
}

func openPlain(ctx context.Context, h *Host, port uint16) (packetConn, error) {
	raw, err := h.openRaw(ctx, port)
	if err != nil {
		return nil, err
	}
	c := &plainConn{raw: raw}
	raw.nat.start()
	c.in.Bytes = make(snet.Bytes, common.SupportedMTU)
	c.out.New = func() any {
		return &outPacket{pkt: snet.Packet{Bytes: make(snet.Bytes, common.SupportedMTU)}}
	}
	return c, nil
}

func (c *plainConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		var err error
		c.from, err = c.raw.readPacket(&c.in)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, nil, err
		}
		if errors.Is(err, errSCMP) {
			c.raw.host.scmp(&c.in, c.raw.nat.target(c.raw.local, c.from), c.from)
			continue
		}
		if err != nil {
			c.raw.host.log.Debug("packet not read", "local", c.raw.local, "error", err)
			continue
		}
		payload, r := c.parse()
		if r == nil {
			continue
		}
		r.noteInitial(payload)
		return copy(b, payload), r.pseudo, nil
	}
}

func (c *plainConn) parse() ([]byte, *route) {
	payload, r, scratch := c.raw.host.parsePacket(&c.in, c.raw.nat.target(c.raw.local, c.from), c.from, c.scratch)
	c.scratch = scratch
	return payload, r
}

// parsePacket returns the payload of a packet that arrived from an underlay address, and the route
// back to its sender. The route is nil if the packet is not for local. For scratch see
// routes.replyRoute.
func (h *Host) parsePacket(p *snet.Packet, local Addr, from netip.AddrPort, scratch []byte) ([]byte, *route, []byte) {
	udp, ok := p.Payload.(snet.UDPPayload)
	if !ok || p.Source.Host.Type() != addr.HostTypeIP || p.Destination.Host.Type() != addr.HostTypeIP {
		return nil, nil, scratch
	}
	raw, ok := p.Path.(snet.RawPath)
	if inner, isEPIC := withoutEPIC(raw); isEPIC {
		raw = snet.RawPath{PathType: scion.PathType, Raw: inner}
	}
	if !ok || raw.PathType != empty.PathType && raw.PathType != scion.PathType {
		return nil, nil, scratch
	}
	// A neighbour names the address at which it sees us, which is unknown here behind a NAT.
	anyName := len(raw.Raw) == 0 && h.behindNAT.Load()
	// A sender in another AS that has no path could name any address, and answers would go there.
	if p.Destination.IA != addr.IA(local.IA) || len(raw.Raw) == 0 && p.Source.IA != p.Destination.IA ||
		!anyName && (p.Destination.Host.IP().Unmap() != local.Host || udp.DstPort != local.Port) {
		return nil, nil, scratch
	}
	from = unmapped(from)
	src := Addr{pathsel.IA(p.Source.IA), p.Source.Host.IP().Unmap(), udp.SrcPort}
	if len(raw.Raw) == 0 && src.IA == h.ia && from.Addr() != src.Host && from.IsValid() && !h.routes.isShim(from) {
		// A neighbour behind a NAT, which knows only its own name for itself.
		src.Host, src.Port = from.Addr(), from.Port()
	}
	r, scratch, err := h.routes.replyRoute(src, raw.Raw, from, scratch)
	if err != nil {
		h.log.Debug("packet not accepted", "from", src, "error", err)
		return nil, nil, scratch
	}
	return udp.Payload, r, scratch
}

func (c *plainConn) WriteTo(b []byte, to net.Addr) (int, error) {
	r := c.raw.host.routes.forAddr(to)
	if r == nil {
		return len(b), nil // the sender's route was dropped before the answer
	}
	w := r.way.Load()
	out := c.out.Get().(*outPacket)
	defer c.out.Put(out)
	out.path = append(out.path[:0], w.raw...)
	local := c.raw.nat.source(c.raw.local, w)
	payload := snet.UDPPayload{SrcPort: local.Port, DstPort: r.remote.Port, Payload: b}
	out.pkt.PacketInfo = packetInfo(local, r.remote, w.dataplane(out.path), payload)
	err := c.raw.writePacket(&out.pkt, w.nextHop)
	if errors.Is(err, net.ErrClosed) {
		return 0, err
	}
	if err != nil {
		c.raw.host.log.Debug("packet not sent", "to", r.remote, "next_hop", w.nextHop, "error", err)
	}
	return len(b), nil
}

// packetInfo describes a packet along a path. Without a remote host, the packet is for the router
// that the path's alert flag selects.
func packetInfo(local, remote Addr, path snet.DataplanePath, payload snet.Payload) snet.PacketInfo {
	p := snet.PacketInfo{
		Destination: snet.SCIONAddress{IA: addr.IA(remote.IA), Host: addr.HostSVC(addr.SvcNone)},
		Source:      snet.SCIONAddress{IA: addr.IA(local.IA), Host: addr.HostIP(local.Host)},
		Path:        path,
		Payload:     payload,
	}
	if remote.Host.IsValid() {
		p.Destination.Host = addr.HostIP(remote.Host)
	}
	return p
}

func (c *plainConn) write(b []byte, to net.Addr, size int) error {
	for part := range slices.Chunk(b, max(size, 1)) {
		if _, err := c.WriteTo(part, to); err != nil {
			return err
		}
	}
	return nil
}

func (c *plainConn) mapper() *mapper { return c.raw.nat }

// Frames are for fastConn only.

func (c *plainConn) features() byte                    { return 0 }
func (c *plainConn) probe(*route, bool, time.Duration) {}
func (c *plainConn) takeAllFrames()                    {}

func (c *plainConn) LocalAddr() net.Addr                { return c.raw.LocalAddr() }
func (c *plainConn) Close() error                       { return c.raw.Close() }
func (c *plainConn) SetDeadline(t time.Time) error      { return c.raw.SetDeadline(t) }
func (c *plainConn) SetReadDeadline(t time.Time) error  { return c.raw.SetReadDeadline(t) }
func (c *plainConn) SetWriteDeadline(t time.Time) error { return c.raw.SetWriteDeadline(t) }
func (c *plainConn) SetReadBuffer(n int) error          { return c.raw.SetReadBuffer(n) }
func (c *plainConn) SetWriteBuffer(n int) error         { return c.raw.SetWriteBuffer(n) }
