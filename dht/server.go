package dht

import (
	crand "crypto/rand"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// Socket sends and receives the messages of one network. Send and Reply may lose a message; they do
// not wait.
type Socket interface {
	Network() Network
	// Addr is where others reach the socket; its host may be unspecified on IP.
	Addr() Addr
	// Receive returns a message, its sender, and a way back for Reply.
	Receive(b []byte) (n int, from Origin, back net.Addr, err error)
	// Send sends a query. again says that the same query had no answer: the socket takes another
	// path if there is one.
	Send(b []byte, to Addr, again bool)
	Reply(b []byte, back net.Addr)
	Close() error
}

const (
	// maxRate bounds the messages that are handled in a second, and maxGroupRate those of one
	// network. Handling a message takes about 20 us, and a node at rest gets one or two in a
	// second.
	maxRate, maxGroupRate = 1000, 200
)

// State is what a node remembers of its last run.
type State struct {
	ID    ID        `json:"id"`
	Addr  Addr      `json:"addr"`
	Nodes []Contact `json:"nodes"`
}

// ServerConfig describes a server.
type ServerConfig struct {
	Sockets []Socket
	// States are those that Server.States has returned in the last run, for any of the networks.
	States []State
	Limits Limits // the zero value: DefaultLimits
	Logger *slog.Logger
}

// Server runs a node on each of its sockets.
type Server struct {
	log     *slog.Logger
	wake    chan struct{}
	done    chan struct{}
	workers sync.WaitGroup

	members []*member

	mu       sync.Mutex // guards the nodes, too
	closed   bool
	followed []*Followed
	finders  []*finder
	due      []func() // what is to be done once mu is free: sending and telling
	dropped  int
}

// member is a node with its socket.
type member struct {
	*Node
	socket  Socket
	in, out int   // bytes of messages
	second  int64 // in which the following messages were received
	rate    int
	groups  map[group]int
}

var errClosed = errors.New("the DHT node is closed")

// Serve starts a node on each socket. The server closes the sockets.
func Serve(cfg ServerConfig) *Server {
	s := &Server{log: cfg.Logger, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if cfg.Limits == (Limits{}) {
		cfg.Limits = DefaultLimits
	}
	var nodes []*Node
	now := time.Now()
	for _, socket := range cfg.Sockets {
		c := Config{Network: socket.Network(), Limits: cfg.Limits, Rand: newRand()}
		if a := socket.Addr(); a.Dialable() {
			c.Addr = a
		}
		var last []Addr
		for _, st := range cfg.States {
			if NetworkOf(st.Addr) != c.Network {
				continue
			}
			if c.ID == (ID{}) && st.ID != (ID{}) && (!c.Addr.Dialable() || IsBound(st.ID, c.Addr)) {
				c.ID = st.ID
			}
			for _, k := range st.Nodes {
				last = append(last, k.Addr)
			}
		}
		m := &member{Node: NewNode(now, c), socket: socket, groups: map[group]int{}}
		m.lost = slices.DeleteFunc(last, func(a Addr) bool { return !m.inNetwork(a) })
		s.members, nodes = append(s.members, m), append(nodes, m.Node)
	}
	Join(nodes...)
	for _, m := range s.members {
		s.workers.Go(func() { s.read(m) })
	}
	s.workers.Go(s.run)
	return s
}

// newRand is a generator that nobody can predict.
func newRand() *rand.Rand {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails
	return rand.New(rand.NewChaCha8(seed))
}

// Close ends the server.
func (s *Server) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if again {
		return nil
	}
	close(s.done)
	var errs []error
	for _, m := range s.members {
		errs = append(errs, m.socket.Close())
	}
	s.workers.Wait()
	return errors.Join(errs...)
}

// read handles the messages of one socket.
func (s *Server) read(m *member) {
	b := make([]byte, 2048)
	for {
		n, from, back, err := m.socket.Receive(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as a port that an earlier packet did not reach
			select {
			case <-s.done:
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		from.Size = n
		if !s.admit(m, from) {
			continue
		}
		msg, err := ParseMessage(b[:n])
		if err != nil {
			bad, ok := errors.AsType[*badItem](err)
			if !ok {
				s.log.Debug("DHT message not understood", "from", from.Addr, "error", err)
				continue
			}
			if msg.Item = nil; msg.IsQuery() { // and so the node refuses it
				msg.Code, msg.Text = bad.code, bad.text
			}
		}
		s.do(func(now time.Time) { s.carry(m, m.Receive(now, from, msg), back) })
	}
}

// admit bounds what is handled in a second, in all and of one network. As much again is for nodes
// that were asked something, so that a flood of questions does not hide their answers.
func (s *Server) admit(m *member, from Origin) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if second := time.Now().Unix(); second != m.second {
		m.second, m.rate = second, 0
		clear(m.groups)
	}
	m.in += from.Size
	g := from.group()
	isOver := func(times int) bool {
		return m.rate >= times*maxRate || g.limited() && m.groups[g] >= times*maxGroupRate
	}
	if isOver(1) && (isOver(2) || !m.hasAsked(from.Addr)) {
		s.dropped++
		return false
	}
	m.rate++
	m.groups[g]++
	return true
}

// run wakes the nodes when something is due.
func (s *Server) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-s.wake:
		case <-timer.C:
			s.do(func(now time.Time) {
				for _, m := range s.members {
					if a := m.socket.Addr(); a.IsSCION() && a.Dialable() && a != m.cfg.Addr { // behind a NAT
						m.moveTo(now, a)
					}
					if !m.NextWake().After(now) {
						s.carry(m, m.Wake(now), nil)
					}
				}
			})
		}
		timer.Reset(max(time.Until(s.next()), time.Millisecond))
	}
}

func (s *Server) next() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := time.Now().Add(time.Minute)
	for _, m := range s.members {
		next = minTime(next, m.NextWake())
	}
	return next
}

// do calls f with the lock on the nodes. Without the lock, it then sends the packets and reports
// the events that f has caused.
func (s *Server) do(f func(now time.Time)) bool {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	f(time.Now())
	due := s.due
	s.due = nil
	s.mu.Unlock()
	for _, x := range due {
		x()
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

// carry queues a node's packets and events, which do sends and reports. The caller holds mu.
func (s *Server) carry(m *member, out Out, back net.Addr) {
	for _, p := range out.Packets {
		b := p.Message.Encode()
		m.out += len(b)
		s.due = append(s.due, func() {
			if p.Reply {
				m.socket.Reply(b, back)
			} else {
				m.socket.Send(b, p.To, p.Again)
			}
		})
	}
	for _, e := range out.Events {
		for _, f := range s.followed {
			if f.hash == e.Target && len(e.Peers) > 0 {
				s.due = append(s.due, func() { f.found(e.Peers) })
			}
		}
		for _, f := range s.finders {
			f.take(m, e)
		}
		s.finders = slices.DeleteFunc(s.finders, func(f *finder) bool { return len(f.pending) == 0 })
	}
}
