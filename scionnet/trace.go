package scionnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/private/common"
	"github.com/scionproto/scion/pkg/snet"

	"braid/pathsel"
)

// Trace is how far packets get along a path.
type Trace struct {
	// Answered are the interfaces of the path up to the last one whose router has answered. If it is all of them, the path is
	// alive.
	Answered int
	// Down is the interface that a router on the way calls down; zero if none does.
	Down pathsel.Interface
	// Unknown: the control plane does not offer the path any more, so that nothing was sent.
	Unknown bool
}

// Alive tells whether packets reach the end of the path.
func (t Trace) Alive(p pathsel.Path) bool { return !t.Unknown && t.Answered == len(p.Interfaces) }

// maxTraced bounds the requests of one Trace.
const maxTraced = 512

// Trace sends an SCMP traceroute request to the router at each interface of the paths to dst, which routers answer
// without any host, and waits until it is known of all paths how far packets get, or until ctx ends, which must have a
// deadline. The results come in the order of the paths. Anybody on the way can forge such answers.
func (h *Host) Trace(ctx context.Context, dst pathsel.IA, paths []pathsel.Path) ([]Trace, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil, errors.New("trace paths: no deadline")
	}
	c, local, err := h.openRaw(ctx, 0, probeHandler{})
	if err != nil {
		return nil, fmt.Errorf("trace paths: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(deadline); err != nil {
		return nil, fmt.Errorf("trace paths: %w", err)
	}
	t := tracer{local: local, dst: dst, results: make([]Trace, len(paths)), open: make([]int, len(paths)), paths: paths}
	for i, p := range paths {
		f, err := h.known(ctx, Addr{IA: dst}, p)
		if err != nil {
			t.results[i].Unknown = true
			continue
		}
		t.send(c, i, f)
	}
	in := snet.Packet{Bytes: make(snet.Bytes, common.SupportedMTU)}
	for t.waiting() {
		var from net.UDPAddr
		err := c.ReadFrom(&in, &from)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			break
		}
		var a probeAnswer
		if errors.As(err, &a) {
			t.take(a.payload)
		}
	}
	return t.results, nil
}

type tracer struct {
	local   Addr
	dst     pathsel.IA
	paths   []pathsel.Path
	results []Trace
	open    []int // requests of each path that nothing has answered
	sent    []request
}

// request is one traceroute request; its sequence number is its place in tracer.sent.
type request struct {
	path, at int // the interface of the path
	answered bool
}

func (t *tracer) send(c *snet.SCIONPacketConn, path int, f found) {
	for at := range t.paths[path].Interfaces {
		if len(t.sent) >= maxTraced {
			return
		}
		way, err := alertAt(f.way.raw, at)
		if err != nil {
			return
		}
		pkt := &snet.Packet{PacketInfo: snet.PacketInfo{
			Destination: snet.SCIONAddress{IA: addr.IA(t.dst), Host: addr.HostSVC(addr.SvcNone)},
			Source:      snet.SCIONAddress{IA: addr.IA(t.local.IA), Host: addr.HostIP(t.local.Host)},
			Path:        way,
			Payload:     snet.SCMPTracerouteRequest{Identifier: t.local.Port, Sequence: uint16(len(t.sent))},
		}}
		if err := c.WriteTo(pkt, net.UDPAddrFromAddrPort(f.way.nextHop)); err != nil {
			return
		}
		t.sent = append(t.sent, request{path: path, at: at})
		t.open[path]++
	}
}

// waiting tells whether it is not known yet how far packets get on some path.
func (t *tracer) waiting() bool {
	for i, r := range t.results {
		if t.open[i] > 0 && !r.Alive(t.paths[i]) {
			return true
		}
	}
	return false
}

func (t *tracer) take(payload snet.Payload) {
	switch m := payload.(type) {
	case snet.SCMPTracerouteReply:
		if r := t.answer(m.Identifier, m.Sequence); r != nil {
			t.results[r.path].Answered = max(t.results[r.path].Answered, r.at+1)
		}
	case snet.SCMPExternalInterfaceDown:
		t.down(m.Payload, pathsel.Interface{IA: pathsel.IA(m.IA), ID: m.Interface})
	case snet.SCMPInternalConnectivityDown:
		t.down(m.Payload, pathsel.Interface{IA: pathsel.IA(m.IA), ID: m.Egress})
	}
}

// answer is the request with that number, if nothing has answered it yet.
func (t *tracer) answer(id, sequence uint16) *request {
	if id != t.local.Port || int(sequence) >= len(t.sent) || t.sent[sequence].answered {
		return nil
	}
	r := &t.sent[sequence]
	r.answered = true
	t.open[r.path]--
	return r
}

func (t *tracer) down(quoted []byte, i pathsel.Interface) {
	q, ok := readQuote(quoted)
	if !ok || q.src != t.local || q.dst.IA != t.dst {
		return
	}
	if r := t.answer(q.src.Port, q.sequence); r != nil && crosses(t.paths[r.path], i) {
		t.results[r.path].Down = i
	}
}
