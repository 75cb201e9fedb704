package scionnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/scionproto/scion/pkg/private/common"
	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"

	"braid/pathsel"
)

// PathStatus is the result of probing a path, in the words of the scion tool.
type PathStatus string

const (
	PathAlive   PathStatus = "alive"
	PathTimeout PathStatus = "timeout" // no answer in time
	PathSCMP    PathStatus = "scmp"    // a router on the path reports that it cannot forward the packet
	PathUnknown PathStatus = "unknown" // not probed: the path is no longer known
)

// Probe is the result of probing one path.
type Probe struct {
	Status PathStatus
	RTT    time.Duration // if alive
	Info   string        // the router's report, or why the path was not probed
}

// Probe sends one SCMP request along each of the paths to dst and waits until all are answered or
// ctx ends; ctx must have a deadline. If host is valid, it gets echo requests. Otherwise traceroute
// requests go to the last router of each path, which needs no host to answer. The results are in
// the order of the paths.
func (h *Host) Probe(ctx context.Context, dst pathsel.IA, host netip.Addr, paths []pathsel.Path) ([]Probe, error) {
	c, err := h.openSCMP(ctx, dst)
	if err != nil {
		return nil, fmt.Errorf("probe paths: %w", err)
	}
	defer c.close()
	results := make([]Probe, len(paths))
	for i, path := range paths {
		f, err := h.resolvePath(ctx, Addr{dst, host, shimPort}, path)
		if err == nil && !host.IsValid() && len(f.way.raw) == 0 {
			results[i] = Probe{Status: PathAlive} // the path inside the AS has no router
			continue
		}
		if err == nil {
			err = c.send(f.way, host, i, -1)
		}
		results[i] = Probe{Status: PathTimeout}
		if err != nil {
			results[i] = Probe{Status: PathUnknown, Info: err.Error()}
		}
	}
	for range c.sent {
		a, ok := c.next()
		if !ok {
			break
		}
		results[a.path] = Probe{Status: PathAlive, RTT: time.Since(a.sent)}
		if a.problem != "" {
			results[a.path] = Probe{Status: PathSCMP, Info: a.problem}
		}
	}
	return results, nil
}

// Trace is how far packets get along a path.
type Trace struct {
	// Answered is the number of interfaces up to the last one whose router answered. If that is all
	// of them, the path is alive.
	Answered int
	// Down is an interface of the path that a router reports as down; zero if there is no such
	// report.
	Down pathsel.Interface
	// Unknown is set if not all requests were sent: the control plane no longer offers the path, the
	// paths before it have used up all requests, or there was no time left.
	Unknown bool
}

// Alive tells whether packets reach the end of the path.
func (t Trace) Alive(p pathsel.Path) bool { return !t.Unknown && t.Answered == len(p.Interfaces) }

// maxTraced bounds the requests of one Trace.
const maxTraced = 512

// Trace sends an SCMP traceroute request to the router at each interface of the paths to dst. It
// waits until it knows of each path how far packets get, or until ctx ends; ctx must have a
// deadline. The results are in the order of the paths. Nothing authenticates the answers: anybody
// on a path can forge them.
func (h *Host) Trace(ctx context.Context, dst pathsel.IA, paths []pathsel.Path) ([]Trace, error) {
	c, err := h.openSCMP(ctx, dst)
	if err != nil {
		return nil, fmt.Errorf("trace paths: %w", err)
	}
	defer c.close()
	results := make([]Trace, len(paths))
	for i, p := range paths {
		f, err := h.resolvePath(ctx, Addr{IA: dst}, p)
		// A path with requests to a part of its routers only would look broken.
		results[i].Unknown = err != nil || len(c.sent)+len(p.Interfaces) > maxTraced
		for at := 0; !results[i].Unknown && at < len(p.Interfaces); at++ {
			results[i].Unknown = c.send(f.way, netip.Addr{}, i, at) != nil
		}
	}
	open := func() bool {
		for _, r := range c.sent {
			if !r.answered && !results[r.path].Alive(paths[r.path]) {
				return true
			}
		}
		return false
	}
	for open() {
		a, ok := c.next()
		if !ok {
			break
		}
		switch r := &results[a.path]; {
		case a.problem == "":
			r.Answered = max(r.Answered, a.at+1)
		case slices.Contains(paths[a.path].Interfaces, a.down):
			r.Down = a.down
		}
	}
	return results, nil
}

// scmpClient sends SCMP requests to an AS from a port of its own and matches the answers to them.
type scmpClient struct {
	conn *rawConn
	dst  pathsel.IA
	sent []scmpRequest // by sequence number
	in   snet.Packet
	stop func() bool
}

// scmpRequest is a request along the path with that index, to the router at the interface with
// index at.
type scmpRequest struct {
	path, at int
	from     Addr // as the first router sees it
	sent     time.Time
	answered bool
}

// scmpAnswer is the answer to a request: the reply or, with a problem, a router's report.
type scmpAnswer struct {
	*scmpRequest
	problem string
	down    pathsel.Interface // if an interface is down
}

func (h *Host) openSCMP(ctx context.Context, dst pathsel.IA) (*scmpClient, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil, errors.New("no deadline")
	}
	conn, err := h.openRaw(ctx, 0)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c := &scmpClient{conn: conn, dst: dst}
	c.in.Bytes = make(snet.Bytes, common.SupportedMTU)
	c.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return c, nil
}

func (c *scmpClient) close() {
	c.stop()
	c.conn.Close()
}

// send sends an echo request to host or, if host is not valid, a traceroute request to the router
// at interface at of the path; see alertAt.
func (c *scmpClient) send(w *way, host netip.Addr, path, at int) (err error) {
	raw, sequence := bytes.Clone(w.raw), uint16(len(c.sent))
	from := c.conn.nat.source(c.conn.local, w)
	// Routers deliver the reply to the port that is the identifier.
	var request snet.Payload = snet.SCMPEchoRequest{Identifier: from.Port, SeqNumber: sequence}
	if !host.IsValid() {
		request = snet.SCMPTracerouteRequest{Identifier: from.Port, Sequence: sequence}
		if raw, err = alertAt(raw, at); err != nil {
			return err
		}
	}
	pkt := &snet.Packet{PacketInfo: packetInfo(from, Addr{IA: c.dst, Host: host}, w.dataplane(raw), request)}
	sent := time.Now()
	if err := c.conn.writePacket(pkt, w.nextHop); err != nil {
		return err
	}
	c.sent = append(c.sent, scmpRequest{path: path, at: at, from: from, sent: sent})
	return nil
}

// next waits for the next answer to a request. It returns false at the deadline.
func (c *scmpClient) next() (scmpAnswer, bool) {
	for {
		_, err := c.conn.readPacket(&c.in)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return scmpAnswer{}, false
		}
		if !errors.Is(err, errSCMP) {
			continue
		}
		if a, ok := c.answer(c.in.Payload); ok {
			return a, true
		}
	}
}

// answer finds the request that an SCMP message answers. Each request is answered once.
func (c *scmpClient) answer(p snet.Payload) (a scmpAnswer, ok bool) {
	var id, sequence uint16
	var quoted []byte
	switch m := p.(type) {
	case snet.SCMPEchoReply:
		id, sequence = m.Identifier, m.SeqNumber
	case snet.SCMPTracerouteReply:
		id, sequence = m.Identifier, m.Sequence
	case snet.SCMPExternalInterfaceDown:
		a.problem, quoted = fmt.Sprintf("interface down: %s#%d", m.IA, m.Interface), m.Payload
		a.down = pathsel.Interface{IA: pathsel.IA(m.IA), ID: m.Interface}
	case snet.SCMPInternalConnectivityDown:
		a.problem, quoted = fmt.Sprintf("connectivity down: %s from %d to %d", m.IA, m.Ingress, m.Egress), m.Payload
		a.down = pathsel.Interface{IA: pathsel.IA(m.IA), ID: m.Egress}
	case snet.SCMPDestinationUnreachable:
		a.problem, quoted = "destination unreachable", m.Payload
	case snet.SCMPParameterProblem:
		a.problem, quoted = fmt.Sprintf("parameter problem, code %d", m.Code()), m.Payload
	default:
		return scmpAnswer{}, false
	}
	var q quote
	if a.problem != "" {
		if q, ok = readQuote(quoted); !ok || q.dst.IA != c.dst {
			return scmpAnswer{}, false
		}
		id, sequence = q.src.Port, q.sequence
	}
	if int(sequence) >= len(c.sent) || c.sent[sequence].answered || c.sent[sequence].from.Port != id {
		return scmpAnswer{}, false
	}
	a.scmpRequest = &c.sent[sequence]
	if a.problem != "" && q.src != a.from {
		return scmpAnswer{}, false
	}
	a.answered = true
	return a, true
}

// alertAt sets the router alert flag of the interface with index i on the path, -1 for the last
// one: its router then takes the packet for itself.
func alertAt(raw []byte, i int) ([]byte, error) {
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
	p, err := snetpath.NewSCIONFromDecoded(*d)
	return p.Raw, err
}
