// Package client downloads and seeds torrents over path-level peers.
//
// If SCION reaches an address-level peer over four paths, the peer becomes four path-level peers.
// Each has a connection of its own that is pinned to its path. An unmodified BitTorrent engine
// (anacrolix/torrent) spreads the pieces over them. The package decides which connections exist:
// the engine dials only what is offered to it, and learns of no address by itself.
//
// Read the files in this order, which dependencies follow, too (order_test.go lists all files):
//
//	Session      one engine, its transports and listeners              session.go
//	Transfer     one torrent; any goroutine may call its methods       transfer.go
//	loop         its goroutine: at each event and every 200 ms the
//	             parts below look, decide and carry out                loop.go
//	core         what the parts share; events from other goroutines    core.go, inbox.go
//
// The parts of a transfer:
//
//	peerSet      the peers: dialled ones with their path-level peers,
//	             spares, accepted connections                          peerset.go, row.go
//	connector    looks up paths; opens, parks and closes connections   connect.go
//	             and bans peers that send wrong data                   judge.go, blame.go
//	chooser      asks pathsel's selector what the connector shall do   choose.go
//	server       applies pathsel's decision whom to serve              serve.go
//	superSeeder  which pieces a super-seed shows to whom               superseed.go, reveal.go
//	rarestFirst  the order of requests, with want                      rarest.go, selection.go
//	nudger       takes back requests that nobody answers               nudge.go
//	trialRunner  finds out who has sent wrong data                     trial.go
//	describer    fetches the description of a magnet link              magnet.go, metadata.go
//	exchanger    peer exchange                                         pex.go
//	checkup      finds out why there is no progress                    checkup.go, cause.go
//	confirmer    makes sure that everything is on disk                 confirm.go, room.go
//
// Between a transfer and the engine:
//
//	offers       the engine's dialer: path-level peers to dial         offers.go
//	inbound      the engine's listener: accepted connections           inbound.go, places.go
//	engineAddr   the address that the engine sees: a made-up IPv6
//	             address for a host or key, and a slot as the port     peer.go
//	link         a connection; what sits on it is in package wire      link.go
//	gauge        what the engine does on a link: outstanding requests,
//	             choked or not                                         link.go, pipeline.go
//	oneFile      the store, as the engine sees it                      onefile.go
//	engine...    what is used of the engine, as interfaces             engine.go, engineconfig.go
//	callbacks    which callback of the engine goes where               callbacks.go
//
// Below them are the transports (transport.go), and what a torrent is (source.go).
//
// The package contacts only the peers that it is given and, with Config.PEX, those that connected
// peers name (pex.go).
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/metainfo"
	"golang.org/x/sync/semaphore"

	"braid/client/wire"
	"braid/pathsel"
	"braid/scionnet"
	"braid/storage"
)

// Session is an engine with its transports. Any number of torrents share it.
type Session struct {
	common
	inbound *inbound
	stop    context.CancelFunc
	workers sync.WaitGroup

	adding sync.Mutex // held by Add
}

// New opens a session. The context bounds the opening only.
func New(ctx context.Context, cfg Config) (*Session, error) {
	log := cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	var s *Session
	transports, err := openTransports(ctx, cfg, log)
	if err == nil {
		s, err = newSession(cfg, log, transports)
	}
	if err != nil {
		for _, t := range transports {
			t.Close()
		}
		return nil, err
	}
	return s, nil
}

// openTransports opens the transports of a session. It also returns the open ones with an error.
func openTransports(
	ctx context.Context, cfg Config, log *slog.Logger,
) (open []Transport, err error) {
	scion, ip, err := cfg.listen()
	if err != nil {
		return nil, err
	}
	add := func(t Transport, err error) error {
		if err == nil {
			open = append(open, t)
		}
		return err
	}
	if cfg.Host != nil {
		listen := scionnet.ListenConfig{Identity: cfg.Identity, Congestion: cfg.Congestion}
		if scion != nil {
			listen.Port = scion.Port
		}
		err = add(openSCION(ctx, cfg.Host, listen))
		if err != nil && scion != nil {
			err = fmt.Errorf("listen on %s: %w", scion, err)
		}
	}
	switch {
	case err != nil:
	case cfg.IP == QUIC:
		err = add(openQUIC(ip, scionnet.IPConfig{
			Identity: cfg.Identity, Congestion: cfg.Congestion, Logger: log,
		}))
	case cfg.IP == TCP:
		err = add(openTCP(ip, cfg.TCPCongestion, cfg.Identity, log))
	case len(ip) > 0:
		err = fmt.Errorf("listen on %s: this session has SCION only", ip[0])
	}
	if err == nil && cfg.WebRTC != nil {
		err = add(openWebRTC(*cfg.WebRTC))
	}
	return open, err
}

// listen divides the addresses in Listen: the one on SCION, which may be nil, and those on IP.
func (cfg *Config) listen() (scion *scionnet.Addr, ip []Peer, err error) {
	for _, p := range cfg.Listen {
		a, ok := p.SCION()
		switch {
		case !ok:
			ip = append(ip, p)
		case cfg.Host == nil:
			return nil, nil, fmt.Errorf("listen on %s: there is no SCION host", p)
		case scion != nil:
			return nil, nil, fmt.Errorf("listen on %s: one SCION address is all a session has, "+
				"and %s was given first", p, scion)
		case a.IA != cfg.Host.IA() || a.Host != cfg.Host.LocalIP():
			return nil, nil, fmt.Errorf("listen on %s: this host is in AS %s, with the address %s",
				p, cfg.Host.IA(), cfg.Host.LocalIP())
		default:
			scion = &a
		}
	}
	return scion, ip, nil
}

// newSession makes a session over open transports. It owns them unless it returns an error.
func newSession(cfg Config, log *slog.Logger, transports []Transport) (*Session, error) {
	if err := cfg.Limits.Validate(); err != nil {
		return nil, err
	}
	s := &Session{
		common: common{
			cfg: cfg, log: log, offers: newOffers(), transports: transports,
			web: &webPort{host: cfg.Host}, examiners: semaphore.NewWeighted(examineAtOnce),
		},
	}
	if s.offers.limits = cfg.Limiter; cfg.Limiter == nil {
		s.offers.limits = wire.NewLimiter(cfg.Limits)
	}
	s.policy.Store(&cfg.Policy)
	s.pex.Store(cfg.PEX)
	if s.cfg.MaxPaths <= 0 {
		s.cfg.MaxPaths = DefaultMaxPaths
	}
	if s.cfg.Selector == nil {
		var err error
		if s.cfg.Selector, err = pathsel.New("adaptive"); err != nil {
			return nil, err
		}
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.inbound = newInbound(s.Listening())
	c := engineConfig(log)
	c.Callbacks = callbacks{&s.common}.list()
	s.gauges.grace = &c.StealRequestGrace
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
func (s *Session) WebRTC() *WebRTC { return transportOf[*WebRTC](&s.common) }

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
	if s.offers.isBanned(suspectOf(w.Origin())) {
		return errBanned
	}
	at, err := s.offers.takeSlot(addrOfAccepted(w))
	if err != nil {
		return err
	}
	l := newLink(wire.Accepted(w, wire.Options{
		Addr: at, Limits: s.offers.limits, InfoHashes: s.infoHashes,
		OnClose: func() { s.offers.freeSlot(at) },
	}), w, t.Name(), at)
	l.accepted = true
	if err = s.offers.attach(l); err == nil {
		err = s.offers.makeRoom(l, s.log)
	}
	if err == nil {
		err = s.inbound.add(s.ctx, l)
	}
	if err != nil {
		s.offers.freeSlot(at)
	}
	return err
}

// infoHashes are the keys with which peers may obfuscate connections.
func (s *Session) infoHashes(each func(key []byte) (more bool)) {
	for hash := range s.transfers.Range {
		if h := hash.(metainfo.Hash); !each(h[:]) {
			return
		}
	}
}

// Add begins a transfer. Its data is in the store, which the caller closes after the session.
func (s *Session) Add(src Source, store storage.Store, opts Options) (*Transfer, error) {
	s.adding.Lock()
	defer s.adding.Unlock()
	if s.ctx.Err() != nil {
		return nil, errors.New("add a torrent: the session is closed")
	}
	if s.transfer(src.InfoHash) != nil {
		return nil, fmt.Errorf("add torrent %s: it is there already", src.title())
	}
	t, err := newTransfer(&s.common, src, store, opts)
	if err != nil {
		return nil, fmt.Errorf("add torrent %s: %w", src.title(), err)
	}
	return t, nil
}

// SetPolicy changes the policy of all transfers. Connections over paths that it forbids end; paths
// that it allows again can be used at once.
func (s *Session) SetPolicy(p pathsel.Policy) {
	s.policy.Store(&p)
	for _, t := range s.transfers.Range {
		t := t.(*Transfer)
		t.do(t.loop.connector.onPolicy)
	}
}

// SetPEX turns peer exchange on or off: see Config.PEX. Peers that connected while it was off take
// no messages of it.
func (s *Session) SetPEX(on bool) { s.pex.Store(on) }

// SetDHT tells the session of this program's DHT nodes. The session tells all connected peers.
func (s *Session) SetDHT(d DHT) { s.dht.Store(&d) }

// Close ends all transfers and connections, and waits for them. Close the stores after it: then the
// data that was received is on disk.
func (s *Session) Close() error {
	s.adding.Lock()
	s.stop()
	s.adding.Unlock()
	for _, t := range s.transfers.Range {
		t.(*Transfer).Close()
	}
	errs := s.engine.Close()
	s.inbound.close() // only now: the engine would report the end of its listener as an error
	// The engine, which has ended, would wait for handshakes that are still to come.
	for _, l := range s.offers.accepted() {
		l.Close()
	}
	for _, t := range s.transports {
		errs = append(errs, t.Close())
	}
	errs = append(errs, s.web.close())
	s.workers.Wait()
	return errors.Join(errs...)
}
