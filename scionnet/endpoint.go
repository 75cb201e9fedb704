package scionnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"braid/pathsel"
	"braid/scionnet/congestion"
	"braid/scionnet/quic"
)

// ListenConfig describes an endpoint. The zero value is an endpoint for dialling, which accepts as well.
type ListenConfig struct {
	// Port to listen on; 0 is any free one.
	Port uint16
	// Identity of the host; nil is a new one that lives as long as the endpoint.
	Identity *Identity
	// MaxConns and MaxConnsPerHost bound the connections accepted and being accepted: in all (default 2048), and
	// from one SCION host (default 512, which is eight paths for each of many peers behind one address). Three quarters
	// of all may come from one AS, and an eighth from peers whose ISD-AS is not proven (Conn.Proven).
	MaxConns, MaxConnsPerHost int
	// Congestion is the congestion controller of all connections; empty is DefaultCongestion.
	Congestion congestion.Algorithm

	// PlainPackets has packets sent and received one by one through scionproto's own library, as everywhere but
	// on Linux: for comparison, and should offloading be in somebody's way.
	PlainPackets bool

	packetIO packetIO // for tests; wins over PlainPackets
}

const (
	defaultMaxConns        = 2048
	defaultMaxConnsPerHost = 512
	// acceptQueue is how many connections wait for Accept. More than come at once in one round trip of a busy
	// application, and little enough memory.
	acceptQueue = 64
	// halfOpenMost is the number of handshakes under way above which a newcomer must first show, at the cost of a
	// round trip, that it receives at the address it claims (RFC 9000, section 8.1.2).
	halfOpenMost = 128
)

// Codes with which a connection is closed (QUIC application error codes).
const (
	codeDone    quic.ApplicationErrorCode = 0 // closed by the application
	codeAbort   quic.ApplicationErrorCode = 1 // given up: what was under way is lost
	codeRefused quic.ApplicationErrorCode = 2 // the acceptor has no room, or the dialler broke the protocol
	// codePacketSize: full packets do not arrive. The next connection is to use smaller ones.
	codePacketSize quic.ApplicationErrorCode = 3
)

// Endpoint is a UDP port of the host, with an identity: all its connections, dialled and accepted, share one socket.
type Endpoint struct {
	pool[*Conn]
	host       *Host
	log        *slog.Logger
	identity   *Identity
	addr       Addr
	congestion congestion.Algorithm
	packets    packetConn
	quic       *quic.Transport
	listener   *quic.Listener
}

// limits are those that the application has chosen, 0 for the default, and what follows from them: without a quarter
// that one AS cannot have, a large one keeps all others out.
func limitsOf(conns, perHost int) limits {
	total := orDefault(conns, defaultMaxConns)
	return limits{total: total, perAS: (3*total + 3) / 4, perHost: orDefault(perHost, defaultMaxConnsPerHost), strangers: (total + 7) / 8}
}

// Listen opens a port of the host.
func (h *Host) Listen(ctx context.Context, cfg ListenConfig) (*Endpoint, error) {
	if err := h.mayListen(cfg.Port); err != nil {
		return nil, err
	}
	id, err := cfg.Identity.orNew()
	if err != nil {
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
	port := packets.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	e := &Endpoint{
		host: h, identity: id, packets: packets,
		addr: Addr{h.ia, h.localIP, port}, congestion: cfg.Congestion,
		log: h.log,
	}
	e.open(limitsOf(cfg.MaxConns, cfg.MaxConnsPerHost))
	e.quic = &quic.Transport{
		Conn:                packets,
		ConnContext:         e.admit,
		VerifySourceAddress: e.full,
	}
	server := quicConfig(leastPacket)
	server.GetConfigForClient = e.configFor
	if e.listener, err = e.quic.Listen(id.TLS(ALPN, nil), server); err != nil {
		e.stop()
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", e.addr, err), packets.Close())
	}
	e.accept(e.listener, e.greet, e.log)
	e.workers.Go(e.watch)
	return e, nil
}

// features are the bits that each side sends as the first byte of its direction.
func (e *Endpoint) features() byte {
	if _, ok := e.packets.(framer); ok {
		return featureBundles
	}
	return 0
}

// offerOn is what is sent as the first byte of a connection along the route. From then on frames may come.
func (e *Endpoint) offerOn(r *route) byte {
	f := e.features()
	if f&featureBundles != 0 {
		r.large.offered.Store(true)
	}
	return f
}

func orDefault(v, d int) int {
	if v > 0 {
		return v
	}
	return d
}

// Addr is the address that others dial.
func (e *Endpoint) Addr() Addr { return e.addr }

// Key is the public key of the endpoint's identity.
func (e *Endpoint) Key() PeerKey { return e.identity.Key() }

// Dial connects to remote over a path, which the host must have found before. If want is not nil, only the peer
// with that key will do; with another the error is a *WrongKeyError. The connection stays on the path, whose
// hop fields are renewed under it.
func (e *Endpoint) Dial(ctx context.Context, remote Addr, path pathsel.Path, want *PeerKey) (*Conn, error) {
	c, err := e.dial(ctx, remote, path, want)
	if err != nil {
		return nil, fmt.Errorf("dial %s over path %s: %w", remote, path.Fingerprint.Short(), err)
	}
	return c, nil
}

func (e *Endpoint) dial(ctx context.Context, remote Addr, path pathsel.Path, want *PeerKey) (*Conn, error) {
	if remote.Port == 0 || !remote.Host.IsValid() {
		return nil, errors.New("the address is not complete")
	}
	if !e.hold() {
		return nil, net.ErrClosed
	}
	defer e.endings.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	f, err := e.host.known(ctx, remote, path)
	if err != nil {
		return nil, err
	}
	f.path = e.host.corrected(f.path, remote, f.trail)
	size, err := packetSize(f.path, headerLen(e.addr, remote, len(f.way.raw)))
	if err != nil {
		return nil, err
	}
	r := e.host.routes.dial(remote, f.trail, &f.way)
	start := time.Now()
	qc, size, err := e.connect(ctx, r, want, size)
	if err != nil {
		e.host.routes.unpin(r)
		return nil, plainError(err)
	}
	e.whenEnded(qc.Context(), func() {
		e.noteSize(r, context.Cause(qc.Context()))
		e.host.routes.unpin(r)
	})
	handshake := time.Since(start)
	control := e.govern(qc, r, size)
	stream, key, err := meet(qc, e.offerOn(r), qc.OpenStream)
	if err != nil {
		return e.keep(qc, nil, plainError(err))
	}
	c := newConn(e, qc, stream, r, key, handshake, size, control)
	c.path.Store(&f.path)
	return e.keep(qc, c, nil)
}

// smallAfter is how long a handshake with full packets is waited for before one with the smallest is begun beside it.
// By then quic-go has repeated a lost packet twice.
const smallAfter = time.Second

// fullHolds is how long a handshake of full packets proves that they pass. Without it a machine too busy to answer within
// smallAfter would take its paths for narrow, and end every connection along them.
const fullHolds = 10 * time.Second

// connect makes a connection whose packets have that size or, if only those get through, the least that QUIC needs.
// Then the path is believed to carry no more. It returns the size.
func (e *Endpoint) connect(ctx context.Context, r *route, want *PeerKey, size int) (*quic.Conn, int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the loser's handshake
	type result struct {
		qc   *quic.Conn
		size int
		err  error
	}
	results := make(chan result, 2)
	var dials sync.WaitGroup
	dial := func(size int) {
		dials.Go(func() {
			qc, err := e.quic.Dial(ctx, r.pseudo, e.identity.TLS(ALPN, want), e.config(size))
			results <- result{qc, size, err}
		})
	}
	dial(size)
	running := 1
	small := make(<-chan time.Time)
	if size > leastPacket {
		t := time.NewTimer(smallAfter)
		defer t.Stop()
		small = t.C
	}
	var first result
	for {
		select {
		case <-small:
			dial(leastPacket)
			running++
			continue
		case first = <-results:
			running--
		}
		// A peer's no is an answer; only silence is worth waiting for the other attempt.
		if first.err == nil || running == 0 || !errors.Is(plainError(first.err), ErrSilent) {
			break
		}
	}
	cancel()
	dials.Wait()
	for range running {
		if late := <-results; late.err == nil {
			late.qc.CloseWithError(codeDone, "")
		}
	}
	now := time.Now()
	if first.err == nil && first.size > leastPacket {
		r.full.Store(now.UnixNano())
	}
	// Not if others' full packets have just passed: then it is a host without time to answer.
	if first.err == nil && first.size < size && now.Sub(time.Unix(0, r.full.Load())) > fullHolds {
		k := r.hostPath()
		e.host.narrow(k, first.size+headerLen(e.addr, r.remote, len(r.way.Load().raw)), "handshake")
	}
	return first.qc, first.size, first.err
}

// known finds what packets need to go along the path.
func (h *Host) known(ctx context.Context, remote Addr, path pathsel.Path) (found, error) {
	if path.Dst != remote.IA {
		return found{}, fmt.Errorf("the path leads to %s", path.Dst)
	}
	if remote.IA == h.ia {
		return found{path: h.localPath(), way: way{nextHop: netip.AddrPortFrom(remote.Host, h.underlayPort(remote.Port))}}, nil
	}
	t := trailOf(path.Interfaces)
	if f, ok := h.lookup.find(remote.IA, t); ok {
		return f, nil
	}
	if _, err := h.lookup.paths(ctx, remote.IA); err != nil {
		return found{}, err
	}
	f, ok := h.lookup.find(remote.IA, t)
	if !ok {
		return found{}, errors.New("the path is not offered any more")
	}
	return f, nil
}

// admit lets a handshake begin that somebody else wants, unless there are too many already.
func (e *Endpoint) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	r := e.host.routes.at(info.RemoteAddr)
	if r == nil {
		return nil, errors.New("route pushed out")
	}
	r = e.host.routes.pin(r)
	g := newGuest(ctx, hostKey{r.remote.IA, r.remote.Host}, e.host.meeting(r))
	a := &admission{peer: r.remote, route: r, guest: g, start: time.Now()}
	var err error
	if a.settled, err = e.enter(ctx, g, info.AddrVerified, func() { e.host.routes.unpin(r) }); err != nil {
		e.host.routes.unpin(r)
		return nil, err
	}
	return context.WithValue(ctx, admissionKey{}, a), nil
}

// admission is what is known of a connection from its first packet on.
type admission struct {
	peer    fmt.Stringer
	route   *route // nil on IP
	guest   *guest
	start   time.Time
	settled func() // the handshake is done
}

type admissionKey struct{}

// configFor answers a dialler with packets of the size of its own, which come from the path's MTU.
func (e *Endpoint) configFor(info *quic.ClientInfo) (*quic.Config, error) {
	r := e.host.routes.at(info.RemoteAddr)
	if r == nil {
		return nil, errors.New("route pushed out")
	}
	return e.config(e.acceptorPacketSize(r)), nil
}

// config is for one more connection with packets of that size.
func (e *Endpoint) config(packetSize int) *quic.Config {
	c := quicConfig(packetSize)
	c.KeepAlivePeriod = keepAliveAmong(e.count())
	return c
}

func (e *Endpoint) acceptorPacketSize(r *route) int {
	most := min(mostPacket, e.host.mtuTo(r)-headerLen(e.addr, r.remote, len(r.way.Load().raw)))
	return max(leastPacket, min(most, int(r.initial.Load())))
}

func (e *Endpoint) greet(ctx context.Context, qc *quic.Conn, a *admission, handshake time.Duration) (*Conn, error) {
	size := e.acceptorPacketSize(a.route)
	control := e.govern(qc, a.route, size)
	stream, key, err := meet(qc, e.offerOn(a.route), func() (*quic.Stream, error) { return qc.AcceptStream(ctx) })
	if err != nil {
		return nil, err
	}
	c := newConn(e, qc, stream, a.route, key, handshake, size, control)
	c.guest = a.guest
	_ = c.Proven() // has it looked into
	return c, nil
}

// Close ends all connections of the endpoint and frees the port. Connections that were closed before still deliver
// what was written, which takes at most the time that Conn.Close allows for it.
func (e *Endpoint) Close() error {
	err := e.drain(func() error { return errors.Join(e.quic.Close(), e.packets.Close()) })
	if err != nil {
		return fmt.Errorf("close %s: %w", e.addr, err)
	}
	return nil
}
