package scionnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/private/common"
	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"

	"braid/pathsel"
)

// PathStatus is what came back over a path that was probed, in the words of the scion tool.
type PathStatus string

const (
	PathAlive   PathStatus = "alive"
	PathTimeout PathStatus = "timeout" // nothing came back in time
	PathSCMP    PathStatus = "scmp"    // a router on the way says that it cannot pass the packet on
	PathUnknown PathStatus = "unknown" // not probed: the path is not known any more
)

// Probe is the result of probing one path.
type Probe struct {
	Status PathStatus
	RTT    time.Duration // of an alive path
	Info   string        // what the router says
}

// Probe sends one SCMP message over each of the paths to dst and waits for the answers until all are there or ctx,
// which must have a deadline, ends. If host is valid the message is an echo request to it; else it is a
// traceroute request to the last router of the path, which answers without any host. The results come in the
// order of the paths.
func (h *Host) Probe(ctx context.Context, dst pathsel.IA, host netip.Addr, paths []pathsel.Path) ([]Probe, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil, errors.New("probe paths: no deadline")
	}
	c, local, err := h.openRaw(ctx, 0, probeHandler{})
	if err != nil {
		return nil, fmt.Errorf("probe paths: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(deadline); err != nil {
		return nil, fmt.Errorf("probe paths: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()

	p := prober{host: h, conn: c, local: local, dst: dst, to: host}
	p.results = make([]Probe, len(paths))
	p.sent = make([]time.Time, len(paths))
	p.trails = make([]trail, len(paths))
	for i, path := range paths {
		p.send(i, path)
	}
	p.collect()
	return p.results, nil
}

type prober struct {
	host    *Host
	conn    *snet.SCIONPacketConn
	local   Addr
	dst     pathsel.IA
	to      netip.Addr
	results []Probe
	sent    []time.Time // zero: no answer awaited
	trails  []trail
}

func (p *prober) send(i int, path pathsel.Path) {
	f, err := p.host.known(context.Background(), Addr{p.dst, p.to, shimPort}, path)
	p.trails[i] = f.trail
	switch {
	case err != nil:
		p.results[i] = Probe{Status: PathUnknown, Info: err.Error()}
		return
	case !p.to.IsValid() && len(f.way.raw) == 0:
		p.results[i] = Probe{Status: PathAlive} // inside the AS there is no router to ask
		return
	}
	pkt := &snet.Packet{PacketInfo: snet.PacketInfo{
		Destination: snet.SCIONAddress{IA: addr.IA(p.dst), Host: addr.HostSVC(addr.SvcNone)},
		Source:      snet.SCIONAddress{IA: addr.IA(p.local.IA), Host: addr.HostIP(p.local.Host)},
	}}
	if p.to.IsValid() {
		pkt.Destination.Host = addr.HostIP(p.to)
		pkt.Path = snetpath.Empty{}
		if len(f.way.raw) > 0 {
			pkt.Path = snetpath.SCION{Raw: append([]byte(nil), f.way.raw...)}
		}
		pkt.Payload = snet.SCMPEchoRequest{Identifier: p.local.Port, SeqNumber: uint16(i)}
	} else {
		pkt.Path, err = alertAt(f.way.raw, -1)
		pkt.Payload = snet.SCMPTracerouteRequest{Identifier: p.local.Port, Sequence: uint16(i)}
	}
	if err == nil {
		err = p.conn.WriteTo(pkt, net.UDPAddrFromAddrPort(f.way.nextHop))
	}
	if err != nil {
		p.results[i] = Probe{Status: PathUnknown, Info: err.Error()}
		return
	}
	p.sent[i] = time.Now()
	p.results[i] = Probe{Status: PathTimeout}
}

// collect takes answers until none is missing or the deadline has passed.
func (p *prober) collect() {
	missing := 0
	for _, t := range p.sent {
		if !t.IsZero() {
			missing++
		}
	}
	in := snet.Packet{Bytes: make(snet.Bytes, common.SupportedMTU)}
	for missing > 0 {
		var from net.UDPAddr
		err := p.conn.ReadFrom(&in, &from)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return
		}
		if i, r, ok := p.answer(err); ok {
			p.results[i] = r
			p.sent[i] = time.Time{}
			missing--
		}
	}
}

// answer reads an SCMP message: which probe it answers, and how.
func (p *prober) answer(err error) (int, Probe, bool) {
	var a probeAnswer
	if !errors.As(err, &a) {
		return 0, Probe{}, false
	}
	switch m := a.payload.(type) {
	case snet.SCMPEchoReply:
		return p.alive(m.Identifier, m.SeqNumber)
	case snet.SCMPTracerouteReply:
		return p.alive(m.Identifier, m.Sequence)
	case snet.SCMPExternalInterfaceDown:
		return p.broken(m.Payload, fmt.Sprintf("interface down: %s#%d", m.IA, m.Interface))
	case snet.SCMPInternalConnectivityDown:
		return p.broken(m.Payload, fmt.Sprintf("connectivity down: %s from %d to %d", m.IA, m.Ingress, m.Egress))
	case snet.SCMPDestinationUnreachable:
		return p.broken(m.Payload, "destination unreachable")
	case snet.SCMPParameterProblem:
		return p.broken(m.Payload, fmt.Sprintf("parameter problem, code %d", m.Code()))
	}
	return 0, Probe{}, false
}

func (p *prober) alive(id, seq uint16) (int, Probe, bool) {
	i := int(seq)
	if id != p.local.Port || i >= len(p.sent) || p.sent[i].IsZero() {
		return 0, Probe{}, false
	}
	return i, Probe{Status: PathAlive, RTT: time.Since(p.sent[i])}, true
}

func (p *prober) broken(quote []byte, info string) (int, Probe, bool) {
	q, ok := readQuote(quote)
	if !ok || q.src != p.local || q.dst.IA != p.dst {
		return 0, Probe{}, false
	}
	for i := range p.trails {
		if p.trails[i] == q.trail && !p.sent[i].IsZero() {
			return i, Probe{Status: PathSCMP, Info: info}, true
		}
	}
	return 0, Probe{}, false
}

// alertAt is the path with the flag by which the router at one of its interfaces takes the packet for itself; they count from
// the sender on, and -1 is the last.
func alertAt(raw []byte, i int) (snet.DataplanePath, error) {
	d, err := decodePath(raw)
	if err != nil {
		return nil, err
	}
	all := crossings(d)
	if i < 0 {
		i += len(all)
	}
	if i < 0 || i >= len(all) {
		return nil, fmt.Errorf("the path has %d interfaces", len(all))
	}
	if c := all[i]; c.ingress {
		d.HopFields[c.hop].IngressRouterAlert = true
	} else {
		d.HopFields[c.hop].EgressRouterAlert = true
	}
	return snetpath.NewSCIONFromDecoded(*d)
}

// probeHandler passes every SCMP message up as an error, which is how snet lets one out of ReadFrom.
type probeHandler struct{}

func (probeHandler) Handle(pkt *snet.Packet) error { return probeAnswer{pkt.Payload} }

type probeAnswer struct{ payload snet.Payload }

func (probeAnswer) Error() string { return "SCMP message" }
