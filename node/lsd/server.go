// Package lsd finds peers on the local network (local service discovery, BEP 14). Each host
// announces its torrents to a multicast group, over IPv4 and IPv6. PROTOCOL.md describes the
// message, and the header in which braid names its address on SCION.
//
//	Message    an announce (message.go)
//	calendar   decides which torrents the next message names (calendar.go)
//	admission  bounds the messages that are read, by sender and time (admission.go)
//	choose     a function that decides on which networks to announce (networks.go)
//	sockets    the multicast groups (sockets.go)
//	Server     one goroutine that announces, and one that listens on each socket (server.go)
//
// All hosts on the local network hear which torrents are announced, and any of them may claim to
// have a torrent. The package does not know which torrents are private: its caller says whether a
// torrent may be announced.
package lsd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"sync"
	"time"

	"braid/scionnet"
)

// Config describes a server.
type Config struct {
	// Listening returns the addresses at which peers are accepted, as hosts of the local network
	// see them. Those over TCP have a zero IA.
	Listening func() []scionnet.Addr
	// TCP and SCION say how peers can be dialled.
	TCP, SCION bool
	Logger     *slog.Logger // may be nil
}

// lookEvery is the time between two looks at the host's interfaces: a laptop changes networks.
const lookEvery = 30 * time.Second

// Server announces torrents to the local network, and hears of others.
type Server struct {
	cfg    Config
	cookie string
	stop   context.CancelFunc
	beater sync.WaitGroup
	wake   chan struct{} // wakes run; see poke

	mu        sync.Mutex
	on        bool
	follows   map[Hash]*Followed
	calendar  calendar
	admission admission
	networks  []network
	sockets   []*socket
	readers   sync.WaitGroup
	busy      bool      // the server had work at the last look at the interfaces
	looked    time.Time // the time of that look
}

// Followed is a torrent of a server.
type Followed struct {
	server *Server
	hash   Hash
	may    func() bool
	found  func(scionnet.Addr)
	heard  map[neighbour]time.Time // the time of each neighbour's last message
}

// neighbour identifies the sender of a message.
type neighbour struct {
	from  netip.Addr
	port  uint16
	scion scionnet.Addr
}

const (
	// maxHeard bounds the neighbours that are remembered for a torrent.
	maxHeard = 256
	// forgetNeighbour is the time after which a silent neighbour counts as new again. Two of its
	// announces are missing then.
	forgetNeighbour = 2*announceEvery + messageEvery
)

// isNew notes a message of a neighbour, and tells whether the neighbour is new, so that it may not
// know us. It returns false if there are too many neighbours.
func (f *Followed) isNew(n neighbour, now time.Time) bool {
	last, known := f.heard[n]
	if !known && len(f.heard) == maxHeard {
		f.forget(now)
	}
	if !known && len(f.heard) == maxHeard {
		return false
	}
	f.heard[n] = now
	return !known || now.Sub(last) >= forgetNeighbour
}

// forget forgets silent neighbours.
func (f *Followed) forget(now time.Time) {
	maps.DeleteFunc(f.heard, func(_ neighbour, at time.Time) bool {
		return now.Sub(at) >= forgetNeighbour
	})
	if len(f.heard) == 0 {
		f.heard = map[neighbour]time.Time{} // an emptied map would keep its memory
	}
}

// Serve starts a server, which does nothing until it is switched on.
func Serve(cfg Config) *Server {
	s := &Server{
		cfg:     cfg,
		cookie:  rand.Text(),
		wake:    make(chan struct{}, 1),
		follows: map[Hash]*Followed{},
	}
	s.cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.beater.Go(func() { s.run(ctx) })
	return s
}

// Close ends the server.
func (s *Server) Close() {
	s.stop()
	s.beater.Wait()
}

// Switch turns the server on or off. An idle server has no sockets and sends nothing.
func (s *Server) Switch(on bool) {
	s.mu.Lock()
	s.on = on
	s.mu.Unlock()
	s.poke()
}

var errFollowed = errors.New("the torrent is announced already")

// Follow announces a torrent while may returns true, and calls found for each address of a peer.
// Addresses over TCP have a zero IA. Neither function may call the server.
func (s *Server) Follow(h Hash, may func() bool, found func(scionnet.Addr)) (*Followed, error) {
	f := &Followed{s, h, may, found, map[neighbour]time.Time{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.follows[h] != nil {
		return nil, errFollowed
	}
	s.follows[h] = f
	s.calendar.soon(h, time.Now())
	s.poke()
	return f, nil
}

// Now announces the torrent as soon as the limit of messages allows it.
func (f *Followed) Now() {
	f.server.mu.Lock()
	f.server.calendar.soon(f.hash, time.Now())
	f.server.mu.Unlock()
	f.server.poke()
}

// Close ends the announces of the torrent.
func (f *Followed) Close() {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	if f.server.follows[f.hash] == f {
		delete(f.server.follows, f.hash)
		f.server.calendar.drop(f.hash)
	}
}

// poke makes run look for work now.
func (s *Server) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Server) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.mu.Lock()
			s.on = false
			s.mu.Unlock()
			s.beat(time.Now())
			s.readers.Wait()
			return
		case <-tick.C:
		case <-s.wake:
		}
		s.beat(time.Now())
	}
}

// beat opens or closes sockets, and sends a message if one is due.
func (s *Server) beat(now time.Time) {
	s.mu.Lock()
	busy := s.on && len(s.follows) > 0
	stale := busy != s.busy || busy && now.Sub(s.looked) >= lookEvery
	s.mu.Unlock()
	if stale {
		s.look(busy, now)
	}
	var due []*Followed
	s.mu.Lock()
	sockets := s.sockets
	if len(sockets) > 0 {
		for _, h := range s.calendar.take(now) {
			due = append(due, s.follows[h])
		}
	}
	s.mu.Unlock()
	m := Message{Cookie: s.cookie}
	for _, f := range due {
		if f.may() {
			m.Hashes = append(m.Hashes, f.hash)
		}
	}
	if len(m.Hashes) > 0 {
		s.send(m, sockets)
	}
}

// send sends a message to all networks, with the addresses of this host there.
func (s *Server) send(m Message, sockets []*socket) {
	for _, a := range s.cfg.Listening() {
		if a.IA != 0 {
			m.SCION = a
		}
	}
	for _, x := range sockets {
		for _, n := range x.networks {
			m.Port = n.port
			if err := x.send(n, m.encode(x.group)); err != nil {
				s.cfg.Logger.Debug("local discovery: an announce was not sent",
					"interface", n.name, "group", x.group, "error", err)
			}
		}
	}
}

// look opens sockets on the host's present networks, unless they are the same as at the last look
// and all were joined then. Without work it closes all sockets.
func (s *Server) look(busy bool, now time.Time) {
	var networks []network
	var err error
	if busy {
		var all []link
		all, err = links()
		networks = choose(all, s.cfg.Listening())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.looked = busy, now
	for _, f := range s.follows { // or a host could fill the memory with neighbours of all torrents
		f.forget(now)
	}
	same, before := reflect.DeepEqual(networks, s.networks), joined(s.sockets)
	if same && before == len(networks) {
		return
	}
	for _, x := range s.sockets {
		_ = x.Close()
	}
	var errs error
	s.networks = networks
	s.sockets, errs = openSockets(networks)
	for _, x := range s.sockets {
		s.readers.Go(func() { s.read(x) })
	}
	if same && joined(s.sockets) == before { // it has failed again
		return
	}
	level := slog.LevelInfo
	if len(s.sockets) == 0 {
		level = slog.LevelWarn
	}
	if err = errors.Join(err, errs); err != nil {
		s.cfg.Logger.Log(context.Background(), level, "local discovery does not reach all networks",
			"error", err)
	}
	for h := range s.follows { // hosts on new networks do not know them yet
		s.calendar.soon(h, now)
	}
}

func (s *Server) read(x *socket) {
	b := make([]byte, maxMessage+1)
	for {
		d, err := x.receive(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.cfg.Logger.Debug("local discovery: a socket has an error", "error", err)
			continue
		}
		if x.isFromNeighbour(d) {
			s.hear(d.from.Addr(), d.bytes, time.Now())
		}
	}
}

// hear handles a message of a neighbour.
func (s *Server) hear(from netip.Addr, b []byte, now time.Time) {
	s.mu.Lock()
	admitted := s.admission.admit(from, now)
	s.mu.Unlock()
	if !admitted {
		return
	}
	m, err := parse(b)
	if err != nil {
		s.cfg.Logger.Debug("local discovery: a message is ignored", "from", from, "error", err)
		return
	}
	if m.Cookie == s.cookie {
		return
	}
	peers := s.peersOf(from, m)
	var to []*Followed
	s.mu.Lock()
	for _, h := range m.Hashes {
		f := s.follows[h]
		if f == nil {
			continue
		}
		if to = append(to, f); f.isNew(neighbour{from, m.Port, m.SCION}, now) {
			s.calendar.soon(h, now) // it must hear of us, too: if we are a seed, we wait for it
		}
	}
	s.mu.Unlock()
	for _, f := range to {
		for _, p := range peers {
			f.found(p)
		}
	}
}

// peersOf returns the addresses at which the sender of a message can be dialled.
func (s *Server) peersOf(from netip.Addr, m Message) (out []scionnet.Addr) {
	if s.cfg.TCP && m.Port != 0 {
		out = append(out, scionnet.Addr{Host: from, Port: m.Port})
	}
	if !s.cfg.SCION || m.SCION.IA == 0 {
		return out
	}
	for _, own := range s.cfg.Listening() {
		if own.IA == m.SCION.IA && scionnet.ScopeOf(m.SCION.Host) < scionnet.ScopeOf(own.Host) {
			s.cfg.Logger.Debug(
				"local discovery: an address is ignored, since it is nearer than this host's",
				"address", m.SCION)
			return out
		}
	}
	return append(out, m.SCION)
}

// Announced tells whether the server has made an announce.
func (s *Server) Announced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.calendar.next.IsZero()
}
