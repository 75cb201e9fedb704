// Package server is a tracker: it introduces the peers of a swarm to each other, over HTTP/1.1,
// UDP, WebSocket, and HTTP/3 on SCION.
//
//	listener ─► admission (lists, keys, limits) ─► swarm.Store ─► answer
//
//	Server     the state that all listeners share       server.go
//	admission  who may ask, and how often               admission.go, limit.go
//	handler    HTTP, over TCP and over SCION            http.go
//	operators  /stats and /metrics, on their own port   operator.go
//	websocket  WebTorrent's protocol, for browsers      websocket.go
//	relay      offers and answers of WebRTC peers       relay.go
//	udp        BEP 15                                   udp.go
//	port       many packets in one system call          port_linux.go, port_other.go
//	paths      path knowledge, for peers on SCION       paths.go
//	Config     the file, with its defaults              config.go
//
// Requests are answered from memory at once, and an overloaded listener sheds load. The package
// opens no listeners on SCION: its caller owns the SCION host.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"braid/scionnet"
	"braid/scionnet/crowd"
	"braid/tracker"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// Server is a tracker. Its Serve methods add listeners. It may be reloaded while it serves.
type Server struct {
	store     swarm.Store
	log       *slog.Logger
	admission atomic.Pointer[admission]
	limits    limiters
	paths     *paths
	relay     *relay
	metrics   *metrics
	began     time.Time
	// id is the tracker ID (BEP 3), which peers repeat in their next announce. It tells trackers on
	// one store, and restarts, apart.
	id string
	// siblings go into answers over IP, and into answers over SCION.
	siblings struct{ toIP, toSCION []string }
}

// New makes a tracker that keeps its swarms in the store. The caller closes the store.
func New(cfg Config, store swarm.Store, log *slog.Logger) (*Server, error) {
	s := &Server{
		store: store, log: log, began: time.Now(), id: cfg.TrackerID,
		paths: newPaths(store, log), relay: newRelay(),
	}
	if s.id == "" {
		s.id = fmt.Sprintf("%016x", rand.Uint64())
	}
	s.limits = limiters{newLimiter(limiterSlots), newLimiter(limiterSlots), newLimiter(1)}
	s.metrics = newMetrics(store, s.paths.base)
	if err := s.Reload(cfg); err != nil {
		return nil, err
	}
	s.paths.exchange(context.Background(), cfg.Paths)
	return s, nil
}

// Reload applies the lists, keys, limits and intervals of the configuration. If it fails, nothing
// changes. Listeners and settings of the store need a restart.
func (s *Server) Reload(cfg Config) error {
	lifetime, old := cfg.Lifetime, s.admission.Load()
	if old != nil {
		cfg.Lifetime = old.cfg.Lifetime // of the store
	}
	g, err := newAdmission(cfg)
	if err != nil && lifetime != cfg.Lifetime {
		return fmt.Errorf("%w; another lifetime needs a restart", err)
	}
	if err != nil {
		return err
	}
	if old != nil { // of the store, too; they hold for peers over WebSocket
		g.cfg.MaxPeers, g.cfg.MaxPerHost = old.cfg.MaxPeers, old.cfg.MaxPerHost
		g.cfg.MaxPerNet = old.cfg.MaxPerNet
	}
	s.admission.Store(g)
	return nil
}

// SetAddresses sets the URLs at which peers reach the tracker: scheme, host and port, and perhaps
// /announce. Answers contain the first few on SCION and on IP that name a host, which
// http://0.0.0.0:80 does not. Call it before the first Serve.
func (s *Server) SetAddresses(urls []string) error {
	unspecified := false
	for _, text := range urls {
		u, err := tracker.ParseURL(text)
		if err != nil {
			return err
		}
		to := &s.siblings.toIP
		if _, scion := u.SCION(); !scion {
			to = &s.siblings.toSCION
			if a, err := netip.ParseAddr(u.Request("").Hostname()); err == nil && a.IsUnspecified() {
				unspecified = true
				continue
			}
		}
		address := strings.TrimSuffix(strings.TrimSuffix(text, "/"), "/announce")
		if _, err := u.Sibling(address); err != nil || len(address) > wire.MaxSibling {
			return fmt.Errorf("%q: want a scheme, a host and a port, in at most %d bytes", text, wire.MaxSibling)
		}
		if len(*to) < wire.MaxSiblings {
			*to = append(*to, address)
		}
	}
	if unspecified && len(s.siblings.toIP) > 0 && len(s.siblings.toSCION) == 0 {
		s.log.Warn("peers on SCION do not learn the tracker's address on IP, " +
			"since it listens on all addresses there; set announce_urls in the configuration")
	}
	return nil
}

// Run sweeps the store, and keeps path knowledge up to date, until the context ends.
func (s *Server) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { s.paths.run(ctx, func() bool { return s.admission.Load().cfg.Paths }) })
	const sweepEvery = time.Minute // a peer may stay that much longer than its lifetime
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.relay.sweep(time.Now(), s.admission.Load().cfg.Lifetime.D())
			if err := s.store.Sweep(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("old peers could not be removed", "error", err)
			}
		}
	}
}

// request is an announce or scrape from the network.
type request struct {
	transport transport
	from      wire.Addr // the host on IP or SCION, with its source port
	// claimed: the sender says that it is in the ISD-AS, without proof. Nothing is stored or
	// charged in the name of the AS.
	claimed bool
	at      time.Time
	room    []wire.Peer // memory for the peers of the answer
}

// announce answers a. The peer may see wire.FailureOf the error.
func (s *Server) announce(ctx context.Context, r request, a *wire.Announce) (wire.Answer, error) {
	g := s.admission.Load()
	s.metrics.of[r.transport].announces.Inc()
	if err := s.limits.take(g, r); err != nil { // before the key, so that nobody can guess many keys
		return wire.Answer{}, err
	}
	if err := g.admit(a.InfoHash, a.Passkey); err != nil {
		return wire.Answer{}, err
	}
	v := swarm.Visit{
		InfoHash: a.InfoHash, ID: a.PeerID, Identity: a.Identity(), Addr: r.from,
		Event: a.Event, Seed: a.Seed(), Fellow: a.Fellow,
		Want: g.cfg.NumWant, Reaches: swarm.IPv4 | swarm.IPv6, Room: r.room,
	}
	v.Addr.Port = a.Port
	if a.NumWant >= 0 {
		v.Want = min(a.NumWant, g.cfg.MaxNumWant)
	}
	if r.claimed { // it is neither added nor removed, and the store knows no AS to charge
		v.Addr, v.Event = wire.Addr{}, wire.Periodic
	}
	switch {
	case r.transport == overUDP && r.from.Host.Is6():
		v.Reaches = swarm.IPv6
		v.Want = min(v.Want, wire.MaxUDPPeers(true))
	case r.transport == overUDP:
		v.Reaches = swarm.IPv4
		v.Want = min(v.Want, wire.MaxUDPPeers(false))
	case a.SCION:
		v.Reaches |= swarm.SCION
	}
	want, ranks := v.Want, g.ranks(r)
	if ranks {
		v.Want = candidates(v, a.Peers)
	}
	view, err := s.store.Announce(ctx, v)
	if err != nil {
		return wire.Answer{}, s.unstored("announce", err)
	}
	out := wire.Answer{
		Interval: jitter(time.Duration(g.cfg.Interval)), MinInterval: time.Duration(g.cfg.MinInterval),
		Complete: view.Counts.Complete, Incomplete: view.Counts.Incomplete,
		External: r.from.Host, Peers: view.Peers,
	}
	if out.Siblings = s.siblings.toIP; r.transport == overSCION {
		out.Siblings = s.siblings.toSCION
	}
	if a.TrackerID != s.id { // else the peer knows it
		out.TrackerID = s.id
	}
	if ranks {
		s.paths.guide(r, a, want, &out)
	}
	if r.claimed {
		view.Refused = errClaimed
		out.Interval = min(out.Interval, provenSoon)
		out.MinInterval = min(out.MinInterval, out.Interval)
	}
	if view.Refused != nil {
		s.metrics.unlisted.Inc()
		out.Warning = view.Refused.Error()
	}
	return out, nil
}

const (
	// provenPatience is how long a first announce waits for the proof of its ISD-AS, which takes a
	// path lookup. Without it nobody would hear of an honest peer before its second announce.
	provenPatience = 2 * time.Second
	// provenSoon is when a peer without a proven ISD-AS shall come back. The lookup continues
	// meanwhile.
	provenSoon = 30 * time.Second
)

var errClaimed = errors.New("the tracker does not yet know the path of your packets as one from your AS, " +
	"so it names this peer to nobody")

// jitter changes an interval by up to a tenth, so that peers that came at once do not come back at
// once.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

func (s *Server) scrape(ctx context.Context, r request, hashes []wire.InfoHash, passkey string) ([]wire.Counts, error) {
	g := s.admission.Load()
	s.metrics.of[r.transport].scrapes.Inc()
	if err := s.limits.take(g, r); err != nil {
		return nil, err
	}
	for _, h := range hashes {
		if err := g.admit(h, passkey); err != nil {
			return nil, err
		}
	}
	counts, err := s.store.Scrape(ctx, hashes)
	if err != nil {
		return nil, s.unstored("scrape", err)
	}
	return counts, nil
}

// unstored logs an error of the store. If the error has words for the peer, the store has logged
// it.
func (s *Server) unstored(what string, err error) error {
	var f *wire.Failure
	if !errors.As(err, &f) && !errors.Is(err, context.Canceled) {
		s.log.Error("the store has a problem", "request", what, "error", err)
	}
	return err
}

func (s *Server) refused(r request, err error) {
	s.metrics.of[r.transport].refusals.Inc()
	if s.log.Enabled(context.Background(), slog.LevelDebug) { // it saves time if refused clients ask very often
		s.log.Debug("request refused", "transport", r.transport, "from", r.from, "reason", err)
	}
}

type transport uint8

const (
	overHTTP transport = iota
	overUDP
	overSCION
	overWebSocket
)

// transportNames are those in metrics.
var transportNames = [...]string{"http", "udp", "scion", "websocket"}

func (t transport) String() string { return transportNames[t] }

const (
	// headerPatience is how long a client may take to send its request, which fits into one packet.
	headerPatience = 5 * time.Second
	// writePatience is how long it may take to receive the answer.
	writePatience = 10 * time.Second
	// idlePatience keeps a connection open for announces of other torrents, but not until the next
	// interval.
	idlePatience = 20 * time.Second
	// grace is how long a stopping server waits for its requests.
	grace = 3 * time.Second
)

// ServeHTTP1 answers HTTP/1.1 on the listener until the context ends, with at most so many
// connections at a time. It closes the listener.
func (s *Server) ServeHTTP1(ctx context.Context, l net.Listener, most int) error {
	return s.serveHTTP1(ctx, l, s.handler(overHTTP), most)
}

// operatorConns is the number of connections for operators at a time: a browser and a few
// collectors.
const operatorConns = 100

// ServeStats answers /stats, /metrics and /healthz on the listener until the context ends. It
// serves everybody who can connect. It closes the listener.
func (s *Server) ServeStats(ctx context.Context, l net.Listener) error {
	return s.serveHTTP1(ctx, l, s.operatorHandler(), operatorConns)
}

func (s *Server) serveHTTP1(ctx context.Context, l net.Listener, handler http.Handler, most int) error {
	h := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerPatience, ReadTimeout: headerPatience,
		WriteTimeout: writePatience, IdleTimeout: idlePatience, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // of broken connections
	}
	return crowd.Serve(ctx, h, crowd.Listen(l, most), grace)
}

// ServeSCION answers HTTP/3 on the port until the context ends.
func (s *Server) ServeSCION(ctx context.Context, p *scionnet.HTTP) error {
	return p.Serve(ctx, s.handler(overSCION), grace)
}

// ServeUDP answers BEP 15 on the connection until the context ends. It closes the connection.
func (s *Server) ServeUDP(ctx context.Context, c *net.UDPConn) error {
	defer c.Close()
	u, err := newUDP(s)
	if err != nil {
		return err
	}
	ports, err := newPorts(c)
	if err != nil {
		return err
	}
	// The system may grant less, which only loses packets under load.
	_ = c.SetReadBuffer(socketBuffer)
	_ = c.SetWriteBuffer(socketBuffer)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	var all errgroup.Group
	readers, batch := runtime.GOMAXPROCS(0), udpBatch
	if _, waits := s.store.(swarm.Waiter); waits {
		readers, batch = waitingReaders, 1
	}
	for range readers {
		all.Go(func() error {
			mine := u
			return mine.serve(ctx, ports.open(batch))
		})
	}
	if err := all.Wait(); ctx.Err() == nil {
		return fmt.Errorf("serve UDP on %s: %w", c.LocalAddr(), err)
	}
	return nil
}

// clientHost is the address that a TCP client connected from.
func clientHost(remote string) (wire.Addr, error) {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return wire.Addr{}, err
	}
	return scionnet.IPAddr(netip.AddrPortFrom(a.Addr().WithZone(""), a.Port())), nil
}
