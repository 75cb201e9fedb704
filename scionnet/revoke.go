package scionnet

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/daemon"
	"github.com/scionproto/scion/pkg/private/ctrl/path_mgmt"
	"github.com/scionproto/scion/pkg/private/util"
	"github.com/scionproto/scion/pkg/segment/iface"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path"
	epicpath "github.com/scionproto/scion/pkg/slayers/path/epic"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
	"github.com/scionproto/scion/pkg/snet"

	"braid/pathsel"
)

// revokedFor is how long a path across a broken interface is not used: as long as the control plane
// remembers a router's report.
const revokedFor = 10 * time.Second

// Revocation says that paths across an interface carry no packets.
type Revocation struct {
	Interface pathsel.Interface
	At, Until time.Time // when a router reported it, and until when it holds
}

// Revoked tells whether a router has reported that an interface of the path is down. It returns the
// revocation that holds longest.
func (h *Host) Revoked(p pathsel.Path) (Revocation, bool) {
	h.lookup.mu.Lock()
	defer h.lookup.mu.Unlock()
	now := time.Now()
	var last Revocation
	for _, i := range p.Interfaces {
		if until := h.lookup.revoked[i]; until.After(now) && until.After(last.Until) {
			last = Revocation{Interface: i, At: until.Add(-revokedFor), Until: until}
		}
	}
	return last, !last.Until.IsZero()
}

// isDown tells whether an interface of a path is known to be down. The caller holds lookup.mu.
func (l *lookup) isDown(f found) bool {
	now := time.Now()
	return slices.ContainsFunc(f.path.Interfaces, func(i pathsel.Interface) bool { return now.Before(l.revoked[i]) })
}

// scmp handles an SCMP message that has arrived at a port of the host, from an underlay address.
func (h *Host) scmp(p *snet.Packet, local Addr, from netip.AddrPort) {
	switch m := p.Payload.(type) {
	case snet.SCMPExternalInterfaceDown:
		h.interfaceDown(p, local, from, m.Payload, pathsel.Interface{IA: pathsel.IA(m.IA), ID: m.Interface})
	case snet.SCMPInternalConnectivityDown:
		h.interfaceDown(p, local, from, m.Payload, pathsel.Interface{IA: pathsel.IA(m.IA), ID: m.Egress})
	case snet.SCMPPacketTooBig:
		h.packetTooBig(p, local, from, m.Payload, int(m.MTU))
	default:
		h.log.Debug("SCMP message", "from", p.Source, "message", p.Payload)
	}
}

// verifySCMP tells whether an SCMP error is credible, and what it is about: a route that a
// connection uses, and the interfaces on it. Such messages are not signed, so everything comparable
// must agree:
//
//   - It quotes a packet from this port to the remote of a live route, along the route's hop
//     fields.
//   - It came back along the same links, so an AS on the path has sent it, or let it pass.
//   - The router of our AS to which the route's packets go has delivered it, and no neighbour.
//   - Its source is in an AS on the path.
//
// What remains possible is a forgery by an AS on the path, or by somebody whom it lets forge.
func (h *Host) verifySCMP(
	p *snet.Packet, local Addr, from netip.AddrPort, b []byte,
) (q quote, r *route, path []pathsel.Interface, ok bool) {
	q, ok = readQuote(b)
	if !ok || q.src != local {
		return q, nil, nil, false
	}
	r = h.routes.live(q.dst, q.trail)
	if r == nil || !r.hasSent(q.raw) || !h.routes.isNextHop(r, from) {
		return q, nil, nil, false
	}
	back, isPath := p.Path.(snet.RawPath)
	if !isPath || back.PathType != scion.PathType {
		return q, nil, nil, false
	}
	if _, hops, err := reverseHops(back.Raw); err != nil || hops.trail != r.trail {
		return q, nil, nil, false
	}
	path, ok = h.lookup.walk(h.ia, r.remote.IA, r.trail)
	if !ok || !slices.ContainsFunc(path, func(i pathsel.Interface) bool { return i.IA == pathsel.IA(p.Source.IA) }) {
		return q, nil, nil, false
	}
	return q, r, path, true
}

// interfaceDown handles a router's report about an interface. The interface must belong to the
// router's own AS and be on the path of a connection.
func (h *Host) interfaceDown(p *snet.Packet, local Addr, from netip.AddrPort, quote []byte, i pathsel.Interface) {
	_, _, path, ok := h.verifySCMP(p, local, from, quote)
	if !ok || i.IA != pathsel.IA(p.Source.IA) || !slices.Contains(path, i) {
		h.log.Debug("ignored an interface-down message that is not credible", "interface", i, "from", p.Source)
		return
	}
	if !h.lookup.revoke(i, time.Now()) {
		return
	}
	h.log.Info("interface down", "interface", i, "seconds", revokedFor.Seconds())
	rev := &path_mgmt.RevInfo{
		IfID: iface.ID(i.ID), RawIsdas: addr.IA(i.IA),
		RawTimestamp: util.TimeToSecs(time.Now()), RawTTL: uint32(revokedFor.Seconds()),
	}
	// The daemon may be another process, and the goroutine that reads packets must not wait for it.
	h.lookup.spawn(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		defer cancel()
		tell := func(c daemon.Connector) error { return c.RevNotification(ctx, rev) }
		if err := h.askDaemon(ctx, tell); err != nil {
			h.log.Debug("revocation not passed on to the daemon", "interface", i, "error", err)
		}
		h.lookup.refreshCrossing(i)
	})
}

// revoke records that an interface is down and tells whether that is new.
func (l *lookup) revoke(i pathsel.Interface, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.revoked[i]) {
		return false
	}
	l.revoked[i] = now.Add(revokedFor)
	for _, d := range l.destinations {
		if uses(d.paths, i) {
			d.notify()
		}
	}
	return true
}

// refreshCrossing schedules lookups of all destinations with a path across the interface.
func (l *lookup) refreshCrossing(i pathsel.Interface) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.destinations {
		if uses(d.paths, i) {
			d.due = time.Now()
		}
	}
	l.wakeUp()
}

// quote describes the packet that an SCMP error message quotes.
type quote struct {
	src, dst Addr   // of an SCMP request, src.Port is the identifier and dst.Port is 0
	sequence uint16 // of an SCMP request
	raw      []byte
	trail    trail
	header   int // of SCION and UDP
	size     int // of the whole packet
}

// readQuote parses the packet that an SCMP error message quotes: a SCION/UDP packet or an SCMP
// request of ours, on a path with hop fields. Routers cut off quotes that would make their message
// longer than 1232 bytes, so the quote may end anywhere after the ports.
func readQuote(b []byte) (q quote, ok bool) {
	var s slayers.SCION
	if err := s.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
		return quote{}, false
	}
	raw, isSCION := s.Path.(*scion.Raw)
	if e, isEPIC := s.Path.(*epicpath.Path); isEPIC {
		raw, isSCION = e.ScionPath, true
	}
	src, err1 := s.SrcAddr()
	dst, err2 := s.DstAddr()
	if !isSCION || err1 != nil || err2 != nil || src.Type() != addr.HostTypeIP {
		return quote{}, false
	}
	header := int(s.HdrLen) * slayers.LineLen
	if header > len(b) {
		return quote{}, false
	}
	hops, err := readHops(raw.Raw)
	if err != nil {
		return quote{}, false
	}
	q = quote{
		src: Addr{IA: pathsel.IA(s.SrcIA), Host: src.IP().Unmap()}, dst: Addr{IA: pathsel.IA(s.DstIA)},
		raw: raw.Raw, trail: hops.trail, header: header + udpHeader, size: header + int(s.PayloadLen),
	}
	if dst.Type() == addr.HostTypeIP {
		q.dst.Host = dst.IP().Unmap()
	}
	switch l4 := b[header:]; {
	case len(l4) < udpHeader:
		return quote{}, false
	case s.NextHdr == slayers.L4UDP:
		q.src.Port, q.dst.Port = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	case s.NextHdr == slayers.L4SCMP && (l4[0] == byte(slayers.SCMPTypeEchoRequest) ||
		l4[0] == byte(slayers.SCMPTypeTracerouteRequest)):
		q.src.Port = binary.BigEndian.Uint16(l4[4:]) // the identifier follows type, code and checksum
		q.sequence = binary.BigEndian.Uint16(l4[6:])
	default:
		return quote{}, false
	}
	return q, true
}

// sameSent tells whether the path that a router quotes is one that we sent. On the way, routers
// change only the current position (the first byte of the path) and the segment identifiers (bytes
// 2 and 3 of each info field); see the SCION header specification, path type SCION.
func sameSent(sent, quoted []byte) bool {
	same := func(from, to int) bool { return bytes.Equal(sent[from:to], quoted[from:to]) }
	if len(sent) != len(quoted) || len(sent) < scion.MetaLen || !same(1, scion.MetaLen) {
		return false
	}
	var m scion.MetaHdr
	if err := m.DecodeFromBytes(sent); err != nil {
		return false
	}
	at := scion.MetaLen
	for i := 0; i < len(m.SegLen) && m.SegLen[i] > 0; i++ {
		end := at + path.InfoLen
		if len(sent) < end || !same(at, at+2) || !same(at+4, end) {
			return false
		}
		at = end
	}
	return same(at, len(sent))
}
