package scionnet

import (
	"context"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/private/ctrl/path_mgmt"
	"github.com/scionproto/scion/pkg/private/util"
	"github.com/scionproto/scion/pkg/segment/iface"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
	"github.com/scionproto/scion/pkg/snet"

	"braid/pathsel"
)

// revokedFor is how long a path that crosses a broken interface is not to be used: the time for which the
// control plane, too, remembers what a router has said.
const revokedFor = 10 * time.Second

// Revocation says that paths across an interface do not carry packets.
type Revocation struct {
	Interface pathsel.Interface
	At, Until time.Time // when the router said so, and how long that holds
}

// Revoked tells whether a router has said of an interface of the path that it is down, and until when that holds
// unless it is said again.
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

// scmpHandler takes the SCMP messages that arrive at an endpoint. It never returns an error: quic-go would close
// every connection of the endpoint over a broken path of one.
func (h *Host) scmpHandler() snet.SCMPHandler { return scmpHandler{h} }

type scmpHandler struct{ h *Host }

func (s scmpHandler) Handle(pkt *snet.Packet) error {
	switch m := pkt.Payload.(type) {
	case snet.SCMPExternalInterfaceDown:
		s.h.interfaceDown(pathsel.Interface{IA: pathsel.IA(m.IA), ID: m.Interface}, m.Payload)
	case snet.SCMPInternalConnectivityDown:
		s.h.interfaceDown(pathsel.Interface{IA: pathsel.IA(m.IA), ID: m.Egress}, m.Payload)
	case snet.SCMPPacketTooBig:
		s.h.tooBig(int(m.MTU), m.Payload)
	default:
		s.h.log.Debug("SCMP message", "from", pkt.Source, "message", pkt.Payload)
	}
	return nil
}

// interfaceDown takes in what a router says of an interface, if the packet that it quotes is one of ours that was on
// its way across it. Nothing else is signed in the message: without the check anybody could shut our paths.
func (h *Host) interfaceDown(i pathsel.Interface, quote []byte) {
	q, ok := h.readQuote(quote)
	if !ok || !q.trail.has(i.ID) {
		h.log.Debug("interface down, but not for a packet of ours", "interface", i)
		return
	}
	f, ok := h.lookup.find(q.dst, q.trail)
	if !ok || !crosses(f.path, i) {
		h.log.Debug("interface down, but on no path of ours", "interface", i, "destination", q.dst)
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
	// The daemon may be another process; the reader of packets does not wait for it.
	h.lookup.spawn(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
		defer cancel()
		if err := h.connector.RevNotification(ctx, rev); err != nil {
			h.log.Debug("daemon not told of the revocation", "interface", i, "error", err)
		}
		h.lookup.hasten(i)
	})
}

// revoke notes that an interface is down and tells whether that is news.
func (l *lookup) revoke(i pathsel.Interface, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.revoked[i]) {
		return false
	}
	l.revoked[i] = now.Add(revokedFor)
	for _, d := range l.destinations {
		if uses(d.paths, i) {
			notify(d.watchers)
		}
	}
	return true
}

// hasten looks the destinations up again whose paths cross the interface.
func (l *lookup) hasten(i pathsel.Interface) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.destinations {
		if uses(d.paths, i) {
			d.due = time.Now()
		}
	}
	l.poke()
}

// quote is what the packet that an SCMP error message quotes says of itself.
type quote struct {
	dst   pathsel.IA
	host  netip.Addr // invalid if it was sent to no IP address
	trail trail
	size  int // of the whole packet, SCION header included
}

// readQuote reads the packet that an SCMP error message quotes. ok is false unless we have sent it.
func (h *Host) readQuote(b []byte) (q quote, ok bool) {
	var s slayers.SCION
	if err := s.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
		return quote{}, false
	}
	src, err := s.SrcAddr()
	if err != nil || pathsel.IA(s.SrcIA) != h.ia || src.Type() != addr.HostTypeIP || src.IP().Unmap() != h.localIP {
		return quote{}, false
	}
	raw, isSCION := s.Path.(*scion.Raw)
	if !isSCION {
		return quote{}, false
	}
	hops, err := readHops(raw.Raw)
	if err != nil {
		return quote{}, false
	}
	q = quote{dst: pathsel.IA(s.DstIA), trail: hops.trail, size: int(s.HdrLen)*slayers.LineLen + int(s.PayloadLen)}
	if dst, err := s.DstAddr(); err == nil && dst.Type() == addr.HostTypeIP {
		q.host = dst.IP().Unmap()
	}
	return q, true
}
