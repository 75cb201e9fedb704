package scionnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/scionproto/scion/pkg/snet"
	"golang.org/x/net/ipv4"

	"braid/scionnet/quic"
	"braid/scionnet/udpbatch"
)

// fastConn is the packetConn made for SCION. A batch of QUIC packets goes out, in order:
//
//  1. quic-go hands over up to 20 KiB of packets of one size for one remote: WriteMsgUDP (one goroutine a connection)
//  2. the route's template gives the header; only lengths and checksum are filled in for each packet, and where the
//     path carries large packets, several go behind one header (bundle.go): send
//  3. one system call sends them all, cut by the kernel or the device: batchSender
//
// and comes in, all in the one goroutine in which quic-go reads:
//
//  1. one system call fetches several runs of packets of one size: batchReceiver
//  2. each packet's header is looked up by its bytes; a packet with a new one is parsed, and the way back to its
//     sender is made, once: open
//  3. bundles are taken apart, and up to eight packets at a time are copied into quic-go's buffers: ReadBatch
//
// It neither sends nor reads ECN marks: SCION's routers do not carry them from one underlay to the
// next, so quic-go finds out after ten packets that there is no ECN and stops. The checksum of what
// arrives is not verified: each hop's UDP has its own, and QUIC authenticates every packet.
type fastConn struct {
	*net.UDPConn // of which the deadlines, the buffers and Close are used
	host         *Host
	local        Addr
	log          *slog.Logger
	raw          syscall.RawConn
	senders      sync.Pool // of *batchSender
	socket       *udpbatch.Socket

	// frames are taken from anybody: there are no connections (Datagrams).
	allFrames bool

	in        *batchReceiver
	slowYield bool   // see giveWay
	bundle    frame  // what is left of one
	from      *route // of the bundle
	headers   map[string]*parsedHeader
	last      *parsedHeader
	key       []byte
	slow      snet.Packet
	scratch   []byte
}

// arrival is a header that has been parsed.
type parsedHeader struct {
	key   string
	route *route
}

// mostArrivals bounds the headers remembered: as many as there are routes, and some for ports that
// are gone. A sender of invented ones empties the table from time to time, and costs a parse for
// every connection.
const maxHeaders = 2 * maxIdle

// longTurn is how long the turn of all others may last that the reader lets pass between two calls.
// A connection works for some 50 us on what one call brings; in this time some hundred packets
// arrive at a fast host, and the socket has room for thousands.
const longTurn = time.Millisecond

var _ quic.OOBCapablePacketConn = (*fastConn)(nil)

func openFast(ctx context.Context, h *Host, port uint16) (packetConn, error) {
	var conn *net.UDPConn
	err := h.atPort(port, func(at *net.UDPAddr) (err error) {
		conn, err = net.ListenUDP("udp", at)
		return err
	})
	if err != nil {
		return nil, err
	}
	c := &fastConn{
		UDPConn: conn, host: h, log: h.log,
		local:   h.addrOf(conn),
		headers: map[string]*parsedHeader{},
		key:     make([]byte, 0, mostHeader),
	}
	if c.raw, err = conn.SyscallConn(); err == nil {
		err = c.raw.Control(func(fd uintptr) { c.socket = udpbatch.NewSocket(fd) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up UDP port %d of %s: %w", port, h.localIP, err), conn.Close())
	}
	c.in = newBatchReceiver(c.raw)
	c.senders.New = func() any { return newBatchSender(c.socket) }
	return c, nil
}

// ReadBatch is how quic-go reads. It waits for the first packet only.
func (c *fastConn) ReadBatch(ms []ipv4.Message, _ int) (int, error) {
	for {
		n := 0
		for n < len(ms) {
			b, r := c.buffered()
			if r == nil {
				break
			}
			m := &ms[n]
			m.N, m.NN, m.Flags, m.Addr = copy(m.Buffers[0], b), 0, 0, r.pseudo
			n++
		}
		if n > 0 {
			return n, nil
		}
		c.yield()
		if err := c.receive(); err != nil {
			return 0, err
		}
	}
}

// giveWay lets the connections take what they have been given, if more has come than one call
// fetches: quic-go keeps at most 256 packets a connection waiting, and drops the rest. But where
// thousands of connections want a turn, one by one, each to send its packets, the socket would
// overflow, and what is then sent again keeps it full for good: there the socket is emptied first.
func (c *fastConn) yield() {
	if !c.in.many {
		c.slowYield = false
	} else if !c.slowYield {
		start := time.Now()
		runtime.Gosched()
		c.slowYield = time.Since(start) > longTurn
	}
}

func (c *fastConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		if p, r := c.buffered(); r != nil {
			return copy(b, p), r.pseudo, nil
		}
		if err := c.receive(); err != nil {
			return 0, nil, err
		}
	}
}

func (c *fastConn) receive() error {
	for {
		err := c.in.receive()
		if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		c.log.Debug("packets not read", "local", c.local, "error", err)
	}
}

// ReadMsgUDP belongs to the interface by which quic-go knows that packets can be read in batches.
func (c *fastConn) ReadMsgUDP(b, _ []byte) (n, oobn, flags int, from *net.UDPAddr, err error) {
	n, a, err := c.ReadFrom(b)
	if err != nil {
		return 0, 0, 0, nil, err
	}
	return n, 0, 0, a.(*net.UDPAddr), nil
}

// buffered is the next QUIC packet of those that have been received, valid until the next call; no
// route if there is none.
func (c *fastConn) buffered() ([]byte, *route) {
	for {
		if len(c.bundle.packets) > 0 {
			return c.bundle.next(), c.from
		}
		p, ok := c.in.next()
		if !ok {
			return nil, nil
		}
		b, r := c.parse(p)
		switch {
		case r == nil:
		case isFrame(b):
			c.handleFrame(r, b)
		case len(b) <= mostPacket:
			r.noteInitial(b)
			return b, r
		}
	}
}

// open is the payload of a packet and the route back to its sender; no route if it is not for us,
// or is SCMP.
func (c *fastConn) parse(p []byte) ([]byte, *route) {
	header, payload, ok := splitHeader(p)
	if !ok {
		return c.parseSlowly(p)
	}
	if a := c.last; a != nil && sameHeader(header, a.key) && !a.route.dropped.Load() {
		return payload, a.route
	}
	c.key = headerKey(c.key, header)
	if a := c.headers[string(c.key)]; a != nil && !a.route.dropped.Load() {
		c.last = a
		return payload, a.route
	}
	payload, r := c.parseSlowly(p)
	if r != nil {
		if len(c.headers) >= maxHeaders {
			clear(c.headers)
		}
		a := &parsedHeader{string(c.key), r}
		c.headers[a.key] = a
		c.last = a
	}
	return payload, r
}

// openSlowly does the same with snet's parser.
func (c *fastConn) parseSlowly(p []byte) ([]byte, *route) {
	c.slow.Bytes = p
	if err := c.slow.Decode(); err != nil {
		c.log.Debug("foreign packet", "local", c.local, "error", err)
		return nil, nil
	}
	if _, ok := c.slow.Payload.(snet.SCMPPayload); ok {
		c.host.scmp(&c.slow, c.local, c.in.From())
		return nil, nil
	}
	payload, r, scratch := c.host.parsePacket(&c.slow, c.local, c.in.From(), c.scratch)
	c.scratch = scratch
	return payload, r
}

// frame takes in a frame of the peer.
func (c *fastConn) handleFrame(r *route, b []byte) {
	f, ok := readFrame(b)
	if !ok || !c.allFrames && !r.large.offered.Load() {
		return
	}
	switch f.kind {
	case kindBundle:
		c.bundle, c.from = f, r
	case kindProbe:
		answer := make([]byte, frameHeader+tokenLen)
		putFrame(answer, kindAnswer, f.size)
		copy(answer[frameHeader:], f.token)
		_ = c.send(r, answer, 0) // a lost answer is asked for again
		r.large.probeArrived(f.size)
		c.probe(r, false)
	case kindAnswer:
		if r.large.answerArrived(f.size, f.token) {
			c.log.Debug("large packets pass", "to", r.remote, "payload_bytes", f.size)
		}
	}
}

// probe sends the probe that is due on the route, if any.
func (c *fastConn) probe(r *route, lossy bool) {
	own := c.host.mtuTo(r) - r.headerLen(c.local)
	b, ok := r.large.nextProbe(own, lossy, time.Now())
	if ok {
		_ = c.send(r, b, 0) // a lost probe is sent again
	}
}

func (c *fastConn) WriteTo(b []byte, to net.Addr) (int, error) {
	return c.write(b, to, 0)
}

// WriteMsgUDP sends b to the route of a pseudo address: one packet or, if oob says so, several of
// one size.
func (c *fastConn) WriteMsgUDP(b, oob []byte, to *net.UDPAddr) (n, oobn int, err error) {
	n, err = c.write(b, to, udpbatch.SegmentSize(oob))
	return n, len(oob), err
}

func (c *fastConn) write(b []byte, to net.Addr, size int) (int, error) {
	r := c.host.routes.forAddr(to)
	if r == nil {
		return len(b), nil // an answer to a sender whose route has been pushed out
	}
	if err := c.send(r, b, size); err != nil {
		return 0, err
	}
	return len(b), nil
}

// send sends b along the route: one payload if size is 0, else several of that size, of which the
// last may be smaller. The only error is that the socket is closed.
func (c *fastConn) send(r *route, b []byte, size int) error {
	t, err := r.templateNow(c.local)
	if err != nil {
		c.log.Debug("packet not sent", "to", r.remote, "error", err)
		return nil
	}
	if size <= 0 || size > len(b) {
		size = len(b)
	}
	s := c.senders.Get().(*batchSender)
	defer c.senders.Put(s)
	for len(b) > 0 {
		k := 1
		if len(b) > size {
			k = bundled(size, int(r.large.limit.Load()))
		}
		n := s.fill(t, c.local.Port, b, size, k)
		if err := s.send(c.raw); errors.Is(err, net.ErrClosed) {
			return err
		} else if err != nil {
			c.log.Debug("packets not sent", "to", r.remote, "next_hop", t.nextHop, "bytes", n, "error", err)
			if errors.Is(err, syscall.EMSGSIZE) {
				r.large.disable() // the local interface does not take them
			}
		}
		b = b[n:]
	}
	return nil
}

// templateNow is the header of the packets on the route's way of now.
func (r *route) templateNow(local Addr) (*template, error) {
	w := r.way.Load()
	if t := r.template.Load(); t != nil && t.way == w {
		return t, nil
	}
	t, err := newTemplate(local, r.remote, w)
	if err != nil {
		return nil, err
	}
	r.template.Store(t)
	return t, nil
}

func (c *fastConn) takeAllFrames() { c.allFrames = true }

func (c *fastConn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// SetDeadline is there for quic-go, which ends its reading with it.
func (c *fastConn) SetDeadline(t time.Time) error { return c.UDPConn.SetDeadline(t) }
