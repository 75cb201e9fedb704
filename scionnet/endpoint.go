package scionnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	epicpath "github.com/scionproto/scion/pkg/slayers/path/epic"

	"braid/pathsel"
	"braid/scionnet/congestion"
	"braid/scionnet/quic"
)

// ListenConfig describes an endpoint. The zero value dials and accepts at any free port.
type ListenConfig struct {
	// Port is the port to listen on; 0 is any free one.
	Port uint16
	// Identity of the host; nil is a new one that lives as long as the endpoint.
	Identity *Identity
	// Congestion is the congestion controller of all connections; empty is DefaultCongestion.
	Congestion congestion.Algorithm

	// PlainPackets sends and receives packets one by one through scionproto's own library, as on
	// every system but Linux. It serves comparisons, and systems on which offloading does not work.
	PlainPackets bool

	packetIO packetIO // for tests; overrides PlainPackets
	limits   limits   // for tests; overrides connLimits
}

// Endpoint is a UDP port of the host with an identity. All its connections, dialled and accepted,
// share one socket.
type Endpoint struct {
	pool[*Conn]
	host    *Host
	addr    Addr
	packets packetConn
}

// Listen opens a port of the host.
func (h *Host) Listen(ctx context.Context, cfg ListenConfig) (*Endpoint, error) {
	if err := h.mayListen(cfg.Port); err != nil {
		return nil, err
	}
	open := openFast
	if cfg.PlainPackets {
		open = openPlain
	}
	if cfg.packetIO != nil {
		open = cfg.packetIO
	}
	packets, err := open(ctx, h, cfg.Port)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{host: h, addr: h.addrOf(packets), packets: packets}
	e.name, e.log, e.identity, e.congestion = e.addr, h.log, cfg.Identity, cfg.Congestion
	e.socket, e.quic = packets, &quic.Transport{Conn: packets, ConnContext: e.admitSCION}
	e.places.limits = cmp.Or(cfg.limits, connLimits)
	server := quicConfig(leastPacket)
	server.GetConfigForClient = e.configFor
	if err := e.listen(server, e.greet); err != nil {
		return nil, err
	}
	e.workers.Go(e.watch)
	packets.mapper().setOnMove(e.moved)
	return e, nil
}

// Addr is the address that peers in other ASes dial. Behind a NAT it can change.
func (e *Endpoint) Addr() Addr { return e.packets.mapper().public(e.addr) }

// LocalAddr is the address that hosts on the same network dial. It differs from Addr behind a NAT.
func (e *Endpoint) LocalAddr() Addr { return e.addr }

var errIncomplete = errors.New("the address is not complete")

// Dial connects to remote over a path that the host has found before. If want is not nil, only the
// peer with that key will do; for any other the error is a *WrongKeyError. The connection stays on
// the path, whose hop fields are renewed under it.
func (e *Endpoint) Dial(ctx context.Context, remote Addr, path pathsel.Path, want *PeerKey) (*Conn, error) {
	c, err := e.dial(ctx, remote, path, want)
	if err != nil {
		return nil, fmt.Errorf("dial %s over path %s: %w", remote, path.Fingerprint.Short(), plainError(err))
	}
	return c, nil
}

func (e *Endpoint) dial(ctx context.Context, remote Addr, path pathsel.Path, want *PeerKey) (*Conn, error) {
	if remote.Port == 0 || !remote.Host.IsValid() {
		return nil, errIncomplete
	}
	ctx, done, err := e.startDial(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	r, path, size, err := e.host.routeTo(ctx, e.addr, remote, path)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	d := dialer[*quic.Conn]{e.host, r, func(ctx context.Context, size int) (*quic.Conn, error) {
		qc, err := e.quic.Dial(ctx, r.pseudo, e.identity.TLS(ALPN, want), e.config(size))
		return qc, plainError(err)
	}, func(qc *quic.Conn) { qc.CloseWithError(codeDone, "") }}
	qc, size, err := d.connect(ctx, size)
	if err != nil {
		e.host.routes.unpin(r)
		return nil, err
	}
	handshake := time.Since(start)
	e.whenEnded(qc.Context(), func() {
		e.noteCloseReason(r, context.Cause(qc.Context()))
		e.host.routes.unpin(r)
	})
	c := &Conn{endpoint: e, route: r}
	c.path.Store(&path)
	c.packetSize, c.handshake = size, handshake
	return e.finishDial(qc, c, e.begin(c, qc, qc.OpenStream))
}

// begin completes a connection whose route, packet size and handshake time are set.
func (e *Endpoint) begin(c *Conn, qc *quic.Conn, open func() (*quic.Stream, error)) error {
	c.remote, c.onFeatures, c.spawn = c.route.remote, c.learnFeatures, e.spawn
	c.control = e.govern(qc, c.route, c.packetSize)
	features := e.packets.features()
	if p := c.path.Load(); p != nil { // dialled
		features |= rateBits(e.expected(*p))
	}
	if features&featureBundles != 0 {
		c.route.large.offered.Store(true)
	}
	return c.duplex.begin(qc, features, open)
}

// routeTo pins a route along a path that the host has found before. It also returns the path with
// the MTU that is known of it, and the size of QUIC packets that fit it.
func (h *Host) routeTo(ctx context.Context, local, remote Addr, path pathsel.Path) (*route, pathsel.Path, int, error) {
	f, err := h.resolvePath(ctx, remote, path)
	if err != nil {
		return nil, pathsel.Path{}, 0, err
	}
	path = h.withKnownMTU(f.path, remote, f.trail)
	size, err := packetSize(path, f.way.headerLen(local, remote))
	if err != nil {
		return nil, pathsel.Path{}, 0, err
	}
	return h.routes.dial(remote, f.trail, f.way), path, size, nil
}

// smallAfter is how long a handshake with full packets may take before one with the smallest
// packets starts beside it. By then quic-go has retransmitted a lost packet twice.
const smallAfter = time.Second

// fullHolds is how long full packets of a handshake, or of a connection to that host, prove that
// the path carries them. Without it, a machine that is too busy to answer within smallAfter would
// consider its paths narrow and end every connection along them.
const fullHolds = 10 * time.Second

// dialer makes a connection along a route.
type dialer[C any] struct {
	host  *Host
	route *route
	// dial makes a connection with packets of a size. Its error is ErrSilent if nothing has arrived
	// from the peer.
	dial func(ctx context.Context, packetSize int) (C, error)
	drop func(C) // ends a connection that is not needed
}

// connect makes a connection with packets of a size or, if only the smallest get through, of the
// least size that QUIC allows; then it lowers the MTU of the path. It returns the size.
func (d dialer[C]) connect(ctx context.Context, size int) (C, int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		qc   C
		size int
		err  error
	}
	results := make(chan result, 2)
	try := func(size int) {
		qc, err := d.dial(ctx, size)
		results <- result{qc, size, err}
	}
	go try(size)
	running := 1
	var small <-chan time.Time
	if size > leastPacket {
		small = time.After(smallAfter)
	}
	var first result
	// A refusal by the peer is final; only after silence is the other attempt worth waiting for.
	for wait := true; wait && running > 0; {
		select {
		case <-small:
			go try(leastPacket)
			running++
		case first = <-results:
			running--
			wait = errors.Is(first.err, ErrSilent)
		}
	}
	cancel() // ends the slower handshake
	for range running {
		if late := <-results; late.err == nil {
			d.drop(late.qc)
		}
	}
	if first.err != nil {
		return first.qc, 0, first.err
	}
	now, k := time.Now(), d.route.hostPath()
	if first.size > leastPacket {
		d.host.memory.fullPass(k, now)
	}
	// If full packets have just passed, a host was too busy, and the path is not to blame.
	if first.size < size && !d.host.memory.passesFull(k, now) {
		d.host.lowerMTU(k, first.size+d.route.headerLen(Addr{Host: d.host.localIP}), "handshake")
	}
	return first.qc, first.size, nil
}

// admitSCION lets a peer's handshake begin, unless there are too many connections.
func (e *Endpoint) admitSCION(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	g, err := e.host.newInbound(ctx, info.RemoteAddr)
	if err != nil {
		return nil, err
	}
	r := g.as.route
	unpin := func() { e.host.routes.unpin(r) }
	a := &admission{peer: r.remote, place: g, packetSize: e.host.answerSize(e.addr, r)} // as in configFor just now
	if ctx, err = e.admit(ctx, a, info.AddrVerified, unpin); err != nil {
		unpin()
	}
	return ctx, err
}

// configFor answers a dialler with packets as large as its own, since it knows the path's MTU.
func (e *Endpoint) configFor(info *quic.ClientInfo) (*quic.Config, error) {
	r := e.host.routes.forAddr(info.RemoteAddr)
	if r == nil {
		return nil, errRouteDropped
	}
	return e.config(e.host.answerSize(e.addr, r)), nil
}

// config is the configuration of one more connection, with packets of that size.
func (e *Endpoint) config(packetSize int) *quic.Config {
	c := quicConfig(packetSize)
	c.KeepAlivePeriod = keepAliveAmong(e.count())
	return c
}

// answerSize is the size of QUIC packets to a dialler: that of its first packet, if our own links
// carry it. With EPIC it leaves room for EPIC's fields. All connections along a route share one
// header, so these fields are added as soon as we dial along the same route.
func (h *Host) answerSize(local Addr, r *route) int {
	theirs := int(r.initial.Load())
	if h.cfg.EPIC {
		theirs -= epicpath.MetadataLen
	}
	return max(leastPacket, min(mostPacket, h.mtuTo(r)-r.headerLen(local), theirs))
}

func (e *Endpoint) greet(ctx context.Context, qc *quic.Conn, a *admission, handshake time.Duration) (*Conn, error) {
	c := &Conn{endpoint: e, route: a.place.as.route, place: a.place}
	c.packetSize, c.handshake = a.packetSize, handshake
	if err := e.begin(c, qc, func() (*quic.Stream, error) { return qc.AcceptStream(ctx) }); err != nil {
		return nil, err
	}
	if !c.Proven() { // which starts the proof
		c.coupleLater()
	}
	return c, nil
}
