// Package client downloads and seeds torrents over path-level peers.
//
// An address-level peer that SCION reaches over four paths becomes four path-level peers, each with a connection
// of its own that is pinned to its path. An unmodified BitTorrent engine (anacrolix/torrent) spreads the
// pieces over them. The package owns which connections exist: the engine dials nothing that was not offered to
// it, and learns of no address by itself. It asks pathsel what to open and close, carries that out, and measures.
//
//	Session   one engine, its transports and listeners
//	Transfer  one torrent: a goroutine that turns paths, measurements and decisions into offers
//	offers    the engine's dialer: the path-level peers that may be dialled, each with a face
//	face      the address that the engine sees: a made-up IPv6 address for the host or the key, a port for (port, path)
//	link      a connection that counts
//	gauge     what the engine does on a connection: requests outstanding, choked
//
// It sends nothing anywhere but to the peers that it is given: no DHT, no peer exchange, no port mapping.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/metainfo"

	"braid/client/wire"
	"braid/pathsel"
	"braid/scionnet"
	"braid/scionnet/congestion"
	"braid/storage"
)

// Config describes a session.
type Config struct {
	// Host is the local SCION host; nil for IP only. It stays open when the session is closed.
	Host *scionnet.Host
	// IP says how peers on IP are reached.
	IP IPTransport
	// Identity is the key that peers see over SCION and QUIC; nil is a new one for this session.
	Identity *scionnet.Identity
	// Listen are addresses to accept connections on: at most one SCION address, which must be of the Host.
	// Without one a SCION host accepts on a free port.
	Listen []Peer
	// Selector decides which paths carry the download; nil is pathsel's "adaptive".
	Selector pathsel.Selector
	// MaxPaths is the budget of connections for each address-level peer and torrent; 0 is DefaultMaxPaths.
	MaxPaths int
	// MaxUploads is the number of peers that each torrent is served to at a time, whatever number of connections they
	// have; 0 is all.
	MaxUploads int
	// MaxRequests bounds the requests that wait for an answer on each connection; 0 is as many as are of use.
	MaxRequests int
	// Policy is which paths the session may open connections over, whatever the selector, and in which order they are
	// tried. Peers that connect to us choose their path themselves.
	Policy pathsel.Policy
	// Congestion is the congestion controller of connections over SCION and QUIC; empty is scionnet.DefaultCongestion.
	Congestion congestion.Algorithm
	// TCPCongestion is that of TCP, as the kernel names it; empty is its default.
	TCPCongestion string
	// Limits bound the rates of all transfers together.
	Limits Limits
	// Logger may be nil.
	Logger *slog.Logger
}

// Limits bound the rates of a session's connections; see wire.Limits.
type Limits = wire.Limits

// PathLimit is a limit for paths with a matching interface.
type PathLimit = wire.PathLimit

// MinRate is the lowest limit in bits per second.
const MinRate = wire.MinRate

// IPTransport is how peers on IP are reached. One of them for all of a session's peers: nothing in an address tells
// which one is meant.
type IPTransport int

const (
	TCP  IPTransport = iota // as every other client
	QUIC                    // as over SCION: the same protocol and keys, which only another braid understands
	NoIP                    // SCION only
)

// Session is an engine with its transports. Any number of torrents share it.
type Session struct {
	common
	limits  *wire.Limiter
	inbound *inbound
	stop    context.CancelFunc
	workers sync.WaitGroup

	mu        sync.Mutex
	transfers map[*Transfer]struct{}
}

// New opens a session. The context bounds the opening only.
func New(ctx context.Context, cfg Config) (*Session, error) {
	var transports []Transport
	closeAll := func() {
		for _, t := range transports {
			t.Close()
		}
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var ip []Peer
	var scion *scionnet.Addr
	for _, p := range cfg.Listen {
		a, ok := p.SCION()
		switch {
		case !ok:
			ip = append(ip, p)
		case cfg.Host == nil:
			return nil, fmt.Errorf("listen on %s: there is no SCION host", p)
		case scion != nil:
			return nil, fmt.Errorf("listen on %s: one SCION address is all a session has, and %s was given first", p, scion)
		case a.IA != cfg.Host.IA() || a.Host != cfg.Host.LocalIP():
			return nil, fmt.Errorf("listen on %s: this host is in AS %s, with the address %s", p, cfg.Host.IA(), cfg.Host.LocalIP())
		default:
			scion = &a
		}
	}
	if cfg.Host != nil {
		var port uint16
		if scion != nil {
			port = scion.Port
		}
		t, err := openSCION(ctx, cfg.Host, scionnet.ListenConfig{Port: port, Identity: cfg.Identity, Congestion: cfg.Congestion})
		if err != nil && scion != nil {
			return nil, fmt.Errorf("listen on %s: %w", scion, err)
		}
		if err != nil {
			return nil, err
		}
		transports = append(transports, t)
	}
	t, err := openIP(cfg, ip, log)
	if err != nil {
		closeAll()
		return nil, err
	}
	if t != nil {
		transports = append(transports, t)
	}
	s, err := newSession(cfg, log, transports)
	if err != nil {
		closeAll()
	}
	return s, err
}

// openIP opens the transport for peers on IP; nil if there is to be none.
func openIP(cfg Config, listen []Peer, log *slog.Logger) (Transport, error) {
	switch {
	case cfg.IP == QUIC:
		t, err := openQUIC(listen, scionnet.IPConfig{Identity: cfg.Identity, Congestion: cfg.Congestion, Logger: log})
		if err != nil {
			return nil, err // not a nil *quicTransport, which would be a Transport
		}
		return t, nil
	case cfg.IP == NoIP && len(listen) > 0:
		return nil, fmt.Errorf("listen on %s: this session has SCION only", listen[0])
	case cfg.IP == NoIP:
		return nil, nil
	}
	t, err := openTCP(listen, cfg.TCPCongestion, log)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// newSession makes a session over transports that are already open, which it owns if there is no error.
func newSession(cfg Config, log *slog.Logger, transports []Transport) (*Session, error) {
	if err := cfg.Limits.Validate(); err != nil {
		return nil, err
	}
	s := &Session{
		common: common{
			log: log, selector: cfg.Selector, maxPaths: cfg.MaxPaths, maxUploads: cfg.MaxUploads, policy: cfg.Policy,
			offers: newOffers(), transports: transports, examining: make(chan struct{}, examineAtOnce),
		},
		limits: wire.NewLimiter(cfg.Limits), transfers: map[*Transfer]struct{}{},
	}
	s.offers.limits = s.limits
	if s.maxPaths <= 0 {
		s.maxPaths = DefaultMaxPaths
	}
	if s.selector == nil {
		var err error
		if s.selector, err = pathsel.New("adaptive"); err != nil {
			return nil, err
		}
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.inbound = newInbound(s.Listening())
	c := engineConfig(log)
	c.Callbacks.CompletedHandshake = s.handshaken
	s.gauges.install(&c.Callbacks, s.offers.linkAt)
	limitRequests(&c.Callbacks, cfg.MaxRequests)
	s.fetches.install(&c.Callbacks)
	client, err := torrent.NewClient(c)
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("start the BitTorrent engine: %w", err)
	}
	client.AddDialer(s.offers)
	client.AddListener(s.inbound)
	s.engine = anacrolix{client}
	for _, t := range transports {
		s.workers.Go(func() { s.accept(t) })
	}
	return s, nil
}

// PeerID is the name that the session tells peers, and should tell trackers (BEP 3).
func (s *Session) PeerID() [20]byte { return s.engine.PeerID() }

func (s *Session) accept(t Transport) {
	for {
		w, err := t.Accept(s.ctx)
		if err != nil {
			if s.ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				s.log.Error("no more connections are accepted", "transport", t.Name(), "error", err)
			}
			return
		}
		if err := s.welcome(t, w); err != nil {
			s.log.Debug("connection refused", "peer", w.Peer(), "error", err)
			w.Close()
		}
	}
}

// welcome hands an accepted connection to the engine, which waits for the peer's handshake.
func (s *Session) welcome(t Transport, w Wire) error {
	if !s.offers.mayBe(w.Peer(), w.Key()) {
		return errKeyChanged
	}
	if s.offers.isBanned(suspectOf(originOf(w))) {
		return errBanned
	}
	f, err := s.offers.takeSlot(faceOfAccepted(w))
	if err != nil {
		return err
	}
	var l *link
	l = newLink(wire.Accepted(originWire{w}, wire.Options{
		Addr: f, Limits: s.limits, InfoHashes: s.infoHashes, OnClose: func() {
			s.inbound.remove(l)
			s.offers.freeSlot(f)
		},
	}), w, t.Name(), f)
	s.offers.attach(l)
	if err := s.inbound.add(s.ctx, l, func(victim *link) {
		s.log.Debug("connection ended", "peer", victim.Peer(), "reason", errReplaced)
	}); err != nil {
		s.offers.freeSlot(f)
		return err
	}
	return nil
}

// infoHashes are the keys of what peers may obfuscate.
func (s *Session) infoHashes(each func(key []byte) (more bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.transfers {
		if !each(t.source.InfoHash.Bytes()) {
			return
		}
	}
}

// handshaken is called by the engine, without its lock, when the peers have told each other which torrent they mean.
// Only now an accepted connection belongs to one.
func (s *Session) handshaken(c *torrent.PeerConn, hash metainfo.Hash) {
	addr := c.RemoteAddr.String()
	s.mu.Lock()
	var t *Transfer
	for x := range s.transfers {
		if x.source.InfoHash == hash {
			t = x
		}
	}
	s.mu.Unlock()
	if f, ok := c.RemoteAddr.(face); ok && t != nil {
		if l := s.offers.linkAt(f); l != nil {
			l.Filter.UseDisk(t.store)
		}
	}
	if t == nil {
		// A torrent that is not here, or the v2 hash of a hybrid: the engine knows it, and we do not speak v2.
		if l := s.inbound.find(addr); l != nil {
			l.Close()
		}
		return
	}
	if l := s.inbound.find(addr); l != nil {
		if t.conceals.Load() {
			l.Filter.Conceal() // the engine goes on to say what it has
		}
		l.Greet()
		t.inbox.put(accepted{l})
		return
	}
	t.inbox.put(greeted{addr})
}

// Add begins a transfer. Data goes to and comes from the store, which stays open when the session is closed, and must
// stay open as long.
func (s *Session) Add(src Source, store storage.Store, opts Options) (*Transfer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, errors.New("add a torrent: the session is closed")
	}
	for t := range s.transfers {
		if t.source.InfoHash == src.InfoHash {
			return nil, fmt.Errorf("add torrent %s: it is there already", src.title())
		}
	}
	var t *Transfer
	t, err := newTransfer(&s.common, src, store, opts, func() { s.forget(t) })
	if err != nil {
		return nil, fmt.Errorf("add torrent %s: %w", src.title(), err)
	}
	s.transfers[t] = struct{}{}
	return t, nil
}

func (s *Session) forget(t *Transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.transfers, t)
}

// Close ends all transfers and connections, and waits for them. The data that was received is on disk when the stores
// are closed after it.
func (s *Session) Close() error {
	s.mu.Lock()
	s.stop()
	all := make([]*Transfer, 0, len(s.transfers))
	for t := range s.transfers {
		all = append(all, t)
	}
	s.mu.Unlock()
	for _, t := range all {
		t.Close()
	}
	errs := s.engine.Close()
	s.inbound.close() // after the engine, which would take the end of its listener for an error
	for _, t := range s.transports {
		errs = append(errs, t.Close())
	}
	s.workers.Wait()
	return errors.Join(errs...)
}
