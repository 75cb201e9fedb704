package scionnet

import (
	"context"
	"errors"
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

// fastConn is the packetConn made for SCION. A batch of QUIC packets is sent in these steps:
//
//  1. WriteMsgUDP: quic-go passes up to 20 KiB of packets of one size for one remote (one goroutine
//     per connection).
//  2. send: the route's template gives the header. Only lengths and checksum are filled in for each
//     packet. If the path carries large packets, several go behind one header (bundle.go).
//  3. batchSender: one system call sends them all; the kernel or the device cuts them apart.
//
// Packets are received in these steps, all in the one goroutine in which quic-go reads:
//
//  1. batchReceiver: one system call fetches several runs of packets of one size.
//  2. parse: each packet's header is looked up by its bytes. A packet with an unknown header is
//     parsed once, which gives the way back to its sender.
//  3. ReadBatch: bundles are taken apart, and up to eight packets at a time are copied into
//     quic-go's buffers.
//
// It neither sends nor reads ECN marks: SCION's routers do not carry them from one underlay to the
// next, so quic-go stops trying after ten packets. It does not verify the checksum of received
// packets: the UDP of each hop has its own, and QUIC authenticates every packet.
type fastConn struct {
	*rawConn // its deadlines, buffer sizes and Close are used
	batches  *udpbatch.Conn
	senders  sync.Pool // of *batchSender

	// frames are accepted from anybody, since there are no connections (Datagrams)
	allFrames bool

	in        *batchReceiver
	slowYield bool   // see yield
	bundle    frame  // the unread rest of a bundle
	from      *route // where the bundle came from
	headers   map[string]*parsedHeader
	last      *parsedHeader
	key       []byte
	slow      snet.Packet
	scratch   []byte
}

type parsedHeader struct {
	key   string
	route *route
}

// maxHeaders bounds the table of parsed headers: one for each route, and some for closed ports. A
// sender of invented headers empties the table now and then, which costs each connection one more
// parse.
const maxHeaders = 2 * maxIdle

// longTurn is the longest time that the reader should lose to other goroutines between two calls. A
// connection works for some 50 us on the packets of one call. Within longTurn some hundred packets
// arrive at a fast host, and the socket has room for thousands.
const longTurn = time.Millisecond

var _ quic.OOBCapablePacketConn = (*fastConn)(nil)

func openFast(ctx context.Context, h *Host, port uint16) (packetConn, error) {
	raw, err := h.openRaw(ctx, port)
	if err != nil {
		return nil, err
	}
	c := &fastConn{rawConn: raw, headers: map[string]*parsedHeader{}, key: make([]byte, 0, mostHeader)}
	if c.batches, err = udpbatch.NewConn(raw.UDPConn); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	c.in = &batchReceiver{Reader: udpbatch.NewReader(receiveMessages), conn: c.batches}
	c.senders.New = func() any {
		return &batchSender{Writer: udpbatch.NewWriter(c.batches.Socket, sendPackets, 2)}
	}
	c.nat.start()
	return c, nil
}

// ReadBatch reads packets for quic-go. It waits only for the first one.
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

// yield lets the connections handle their packets if more have arrived than one call fetches:
// quic-go queues at most 256 packets for a connection and drops the rest. But if thousands of
// connections want to run and send, the socket would overflow meanwhile, and retransmissions would
// keep it full. In that case the reader empties the socket first.
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
		c.host.log.Debug("packets not read", "local", c.local, "error", err)
	}
}

// ReadMsgUDP is part of the interface by which quic-go recognises connections that read in batches.
func (c *fastConn) ReadMsgUDP(b, _ []byte) (n, oobn, flags int, from *net.UDPAddr, err error) {
	n, a, err := c.ReadFrom(b)
	if err != nil {
		return 0, 0, 0, nil, err
	}
	return n, 0, 0, a.(*net.UDPAddr), nil
}

// buffered returns the next received QUIC packet, valid until the next call. The route is nil if
// there is none.
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

// parse returns the payload of a packet and the route back to its sender. The route is nil if the
// packet is SCMP or not for us.
func (c *fastConn) parse(p []byte) ([]byte, *route) {
	header, payload, ok := splitHeader(p)
	if !ok {
		return c.parseSlowly(p)
	}
	if c.nat.isOn() {
		c.nat.target(c.local, c.in.From())
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
	// Two neighbours behind NATs can have the same header.
	if r != nil && (len(c.slow.Path.(snet.RawPath).Raw) > 0 || r.remote.Host == c.slow.Source.Host.IP().Unmap()) {
		if len(c.headers) >= maxHeaders {
			clear(c.headers)
		}
		a := &parsedHeader{string(c.key), r}
		c.headers[a.key] = a
		c.last = a
	}
	return payload, r
}

// parseSlowly does the same with snet's parser.
func (c *fastConn) parseSlowly(p []byte) ([]byte, *route) {
	if isSTUN(p) {
		c.nat.handle(p, c.in.From())
		return nil, nil
	}
	c.slow.Bytes = p
	if err := c.slow.Decode(); err != nil {
		c.host.log.Debug("packet not accepted", "local", c.local, "error", err)
		return nil, nil
	}
	if _, ok := c.slow.Payload.(snet.SCMPPayload); ok {
		c.host.scmp(&c.slow, c.nat.target(c.local, c.in.From()), c.in.From())
		return nil, nil
	}
	payload, r, scratch := c.host.parsePacket(&c.slow, c.nat.target(c.local, c.in.From()), c.in.From(), c.scratch)
	c.scratch = scratch
	return payload, r
}

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
		_ = c.send(r, answer, 0) // if the answer is lost, the peer probes again
		if r.large.probeArrived(f.size) {
			c.probe(r, false, 0)
		}
	case kindAnswer:
		if r.large.answerArrived(f.size, f.token) {
			c.host.log.Debug("large packets arrive", "to", r.remote, "payload_bytes", f.size)
		}
	}
}

// probe sends the probe that is due on the route, if any.
func (c *fastConn) probe(r *route, lossy bool, roundTrip time.Duration) {
	own := c.host.mtuTo(r) - r.headerLen(c.local)
	b, ok := r.large.nextProbe(own, lossy, roundTrip, time.Now())
	if ok {
		_ = c.send(r, b, 0) // if the probe is lost, another one follows
	}
}

func (c *fastConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if err := c.write(b, to, len(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// WriteMsgUDP sends b to the route of a pseudo address: one packet or, if oob says so, several of
// one size.
func (c *fastConn) WriteMsgUDP(b, oob []byte, to *net.UDPAddr) (n, oobn int, err error) {
	if err := c.write(b, to, udpbatch.SegmentSize(oob)); err != nil {
		return 0, 0, err
	}
	return len(b), len(oob), nil
}

func (c *fastConn) write(b []byte, to net.Addr, size int) error {
	r := c.host.routes.forAddr(to)
	if r == nil {
		return nil // the sender's route was dropped before the answer
	}
	return c.send(r, b, size)
}

// send sends b along the route: one payload if size is 0, else payloads of that size, of which the
// last may be smaller. The only error is that the socket is closed.
func (c *fastConn) send(r *route, b []byte, size int) error {
	w := r.way.Load()
	local := c.nat.source(c.local, w)
	t, err := r.templateFor(local, w)
	if err != nil {
		c.host.log.Debug("packet not sent", "to", r.remote, "error", err)
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
		n := s.fill(t, local.Port, b, size, k)
		if err := s.send(c.batches); errors.Is(err, net.ErrClosed) {
			return err
		} else if err != nil {
			c.host.log.Debug("packets not sent",
				"to", r.remote, "next_hop", t.nextHop, "bytes", n, "error", err)
			if errors.Is(err, syscall.EMSGSIZE) {
				r.large.disable() // the local interface does not carry them
			}
		}
		b = b[n:]
	}
	return nil
}

// templateFor is the header template for packets from local along w.
func (r *route) templateFor(local Addr, w *way) (*template, error) {
	if t := r.template.Load(); t != nil && t.way == w && t.host == local.Host {
		return t, nil
	}
	t, err := newTemplate(local, r.remote, w)
	if err != nil {
		return nil, err
	}
	r.template.Store(t)
	return t, nil
}

func (c *fastConn) features() byte { return featureBundles }

func (c *fastConn) takeAllFrames() { c.allFrames = true }
