// Package client downloads and seeds torrents over path-level peers.
//
// If SCION reaches an address-level peer over four paths, the peer becomes four path-level peers.
// Each has a connection of its own that is pinned to its path. An unmodified BitTorrent engine
// (anacrolix/torrent) spreads the pieces over them. The package decides which connections exist:
// the engine dials only what is offered to it, and learns of no address by itself.
//
//	Session    one engine, its transports and listeners
//	Transfer   one torrent: a loop over parts that look, decide and carry out
//	connector  the part that carries out what pathsel has decided: opens, parks and closes connections
//	peerSet    the peers of a transfer and their path-level peers
//	offers     the engine's dialer: the path-level peers that it may dial
//	engineAddr the address that the engine sees: a made-up IPv6 address for a host or key, and a port
//	link       a connection; what sits on it is in package wire
//	gauge      what the engine does on a connection: outstanding requests, choked or not
//
// The package contacts only the peers that it is given and, with Config.PEX, those that connected
// peers name (pex.go).
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
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
	// IP is the transport for peers on IP.
	IP IPTransport
	// WebRTC adds a transport for peers in browsers; nil: none. See Session.WebRTC.
	WebRTC *WebRTCConfig
	// Identity is the key that peers see over SCION and QUIC; nil makes a new one for this session.
	// If it is in a group, only members of the group can connect, over TCP too.
	Identity *scionnet.Identity
	// Listen are the addresses to accept connections at. At most one may be a SCION address, which
	// must be one of the Host. Without it, a SCION host accepts connections at a free port.
	Listen []Peer
	// Selector decides which paths carry the download; nil is pathsel's "adaptive".
	Selector pathsel.Selector
	// MaxPaths is the budget of connections for each address-level peer and torrent; 0 is
	// DefaultMaxPaths.
	MaxPaths int
	// MaxUploads is the number of peers to which each torrent is uploaded at a time, however many
	// connections a peer has; 0 is all.
	MaxUploads int
	// MaxRequests bounds the outstanding requests on each connection; 0 adapts to the connection.
	MaxRequests int
	// Policy says over which paths the session may open connections, whatever the selector, and in
	// which order it tries them. Peers that connect to us choose their paths themselves.
	Policy pathsel.Policy
	// Congestion is the congestion control algorithm over SCION and QUIC; empty is
	// scionnet.DefaultCongestion.
	Congestion congestion.Algorithm
	// TCPCongestion is the algorithm over TCP, by the kernel's name for it; empty is the kernel's
	// default.
	TCPCongestion string
	// Limits bound the rates of all transfers together.
	Limits Limits
	// Limiter, if not nil, is used instead of Limits. Its limits can be changed while the session
	// runs. Without it, limits of single transfers have no effect.
	Limiter *Limiter
	// PEX turns peer exchange on, in torrents that are not private: connected peers tell each other
	// addresses of peers, by ut_pex on IP (BEP 11) and by scion_pex on SCION (PEX.md).
	PEX bool
	// Logger may be nil.
	Logger *slog.Logger
}

// PathLimit is a limit for paths with a matching interface.
type PathLimit = wire.PathLimit

// MinRate is the lowest limit in bits per second.
const MinRate = wire.MinRate

// IPTransport is the transport for peers on IP. A session uses one for all of them, since an
// address does not tell which one is meant.
type IPTransport int

const (
	TCP  IPTransport = iota // as every other client does
	QUIC                    // the same protocol and keys as over SCION, which only braid understands
	NoIP                    // SCION only
)

// Session is an engine with its transports. Any number of torrents share it.
type Session struct {
	common
	inbound *inbound
	stop    context.CancelFunc
	workers sync.WaitGroup

	mu        sync.Mutex
	transfers map[metainfo.Hash]*Transfer
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
	if cfg.WebRTC != nil {
		t, err := openWebRTC(*cfg.WebRTC)
		if err != nil {
			closeAll()
			return nil, err
		}
		transports = append(transports, t)
	}
	s, err := newSession(cfg, log, transports)
	if err != nil {
		closeAll()
	}
	return s, err
}

// openIP opens the transport for peers on IP. It returns nil if the session shall have none.
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
	t, err := openTCP(listen, cfg.TCPCongestion, cfg.Identity, log)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// newSession makes a session over open transports. It owns them unless it returns an error.
func newSession(cfg Config, log *slog.Logger, transports []Transport) (*Session, error) {
	if err := cfg.Limits.Validate(); err != nil {
		return nil, err
	}
	s := &Session{
		common: common{
			log: log, selector: cfg.Selector, maxPaths: cfg.MaxPaths, maxUploads: cfg.MaxUploads,
			web: &webPort{host: cfg.Host}, offers: newOffers(), transports: transports, examining: make(chan struct{}, examineAtOnce),
		},
		transfers: map[metainfo.Hash]*Transfer{},
	}
	if s.offers.limits = cfg.Limiter; cfg.Limiter == nil {
		s.offers.limits = wire.NewLimiter(cfg.Limits)
	}
	s.policy.Store(&cfg.Policy)
	s.exchanges.on.Store(cfg.PEX)
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
	s.gauges.install(c, s.offers.linkAt)
	limitRequests(&c.Callbacks, cfg.MaxRequests)
	s.fetches.install(&c.Callbacks)
	s.exchanges.install(&c.Callbacks, &s.gauges)
	client, err := torrent.NewClient(c)
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("start the BitTorrent engine: %w", err)
	}
	client.AddDialer(s.offers)
	client.AddListener(s.inbound)
	s.engine = anacrolix{client, maxConns}
	for _, t := range transports {
		s.workers.Go(func() { s.accept(t) })
	}
	return s, nil
}

// PeerID is the name that the session tells peers, and should tell trackers (BEP 3).
func (s *Session) PeerID() [20]byte { return s.engine.PeerID() }

// WebRTC makes connections over WebRTC; nil if the session has none.
func (s *Session) WebRTC() *WebRTC {
	for _, t := range s.transports {
		if t, ok := t.(*WebRTC); ok {
			return t
		}
	}
	return nil
}

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
	f, err := s.offers.takeSlot(addrOfAccepted(w))
	if err != nil {
		return err
	}
	var l *link
	l = newLink(wire.Accepted(originWire{w}, wire.Options{
		Addr: f, Limits: s.offers.limits, InfoHashes: s.infoHashes, OnClose: func() {
			s.inbound.remove(l)
			s.offers.freeSlot(f)
		},
	}), w, t.Name(), f)
	l.accepted = true
	s.offers.attach(l)
	if err := s.inbound.add(s.ctx, l, s.log); err != nil {
		s.offers.freeSlot(f)
		return err
	}
	return nil
}

// infoHashes are the keys with which peers may obfuscate connections.
func (s *Session) infoHashes(each func(key []byte) (more bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash := range s.transfers {
		if !each(hash.Bytes()) {
			return
		}
	}
}

// handshaken is called by the engine, without its lock, when both sides have named a torrent. Until
// then, nobody knows for which torrent an accepted connection is.
func (s *Session) handshaken(c *torrent.PeerConn, hash metainfo.Hash) {
	s.mu.Lock()
	t := s.transfers[hash]
	s.mu.Unlock()
	f, _ := c.RemoteAddr.(engineAddr)
	l := s.offers.linkAt(f)
	switch {
	case l == nil: // the connection has ended meanwhile
		return
	case t == nil && l.accepted:
		// An unknown torrent, or the v2 hash of a hybrid, which the engine knows and braid does not
		// speak.
		l.Close()
		return
	case t == nil:
		return
	}
	l.Filter.UseDisk(t.store)
	l.LimitBy(t.loop.options.Limiter)
	if !l.accepted {
		t.inbox.put(func() { t.loop.connector.onGreeted(l) })
		return
	}
	if t.conceals.Load() {
		l.Filter.Conceal() // next, the engine would tell the peer its pieces
	}
	l.Greet()
	t.inbox.put(func() { t.loop.connector.onAccepted(l) })
}

// Add begins a transfer. Its data is in the store, which the caller closes after the session.
func (s *Session) Add(src Source, store storage.Store, opts Options) (*Transfer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, errors.New("add a torrent: the session is closed")
	}
	if s.transfers[src.InfoHash] != nil {
		return nil, fmt.Errorf("add torrent %s: it is there already", src.title())
	}
	t, err := newTransfer(&s.common, src, store, opts, func() { s.forget(src.InfoHash) })
	if err != nil {
		return nil, fmt.Errorf("add torrent %s: %w", src.title(), err)
	}
	s.transfers[src.InfoHash] = t
	return t, nil
}

// SetPolicy changes the policy of all transfers. Connections over paths that it forbids end; paths
// that it allows again can be used at once.
func (s *Session) SetPolicy(p pathsel.Policy) {
	s.policy.Store(&p)
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.transfers))
	s.mu.Unlock()
	for _, t := range all {
		t.do(t.loop.connector.onPolicy)
	}
}

// SetPEX turns peer exchange on or off: see Config.PEX. Peers that connected while it was off take
// no messages of it.
func (s *Session) SetPEX(on bool) { s.exchanges.on.Store(on) }

// SetDHT tells the session of this program's DHT nodes. The session tells all connected peers.
func (s *Session) SetDHT(d DHT) { s.dht.Store(&d) }

func (s *Session) forget(hash metainfo.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.transfers, hash)
}

// Close ends all transfers and connections, and waits for them. Close the stores after it: then the
// data that was received is on disk.
func (s *Session) Close() error {
	s.mu.Lock()
	s.stop()
	all := slices.Collect(maps.Values(s.transfers))
	s.mu.Unlock()
	for _, t := range all {
		t.Close()
	}
	errs := s.engine.Close()
	s.inbound.close() // only now: the engine would report the end of its listener as an error
	for _, t := range s.transports {
		errs = append(errs, t.Close())
	}
	errs = append(errs, s.web.close())
	s.workers.Wait()
	return errors.Join(errs...)
}
