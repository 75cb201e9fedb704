package scionnet

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"

	"braid/pathsel"
	"braid/scionnet/congestion"
	"braid/scionnet/quic"
)

// DefaultCongestion is the congestion controller of connections for which none is chosen.
const DefaultCongestion = congestion.BBR

// controller is the congestion controller of one connection. QUIC calls it from the connection's goroutine; others look at
// it, and tell it along which links the connection goes.
type controller struct {
	coupling *coupling // nil on IP, where links are not known

	mu     sync.Mutex
	flow   *congestion.Flow
	joined joined
}

// joined is how much of a connection's path its group knows.
type joined int

const (
	notJoined   joined = iota
	joinedFirst        // the link by which it leaves this AS
	joinedAll
	left // the connection has ended
)

var _ quic.Controller = (*controller)(nil)

// newController is the controller of a new connection, for quic.Control. Packets have that size, or more where QUIC finds
// that out.
func newController(a congestion.Algorithm, packetSize int, c *coupling) *controller {
	a = cmp.Or(a, DefaultCongestion)
	return &controller{coupling: c, flow: congestion.New(congestion.Config{Algorithm: a, PacketSize: packetSize, Seed: rand.Uint64()})}
}

func (k *controller) OnSent(now time.Duration, number int64, size, inflight int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flow.OnSent(now, number, size, inflight)
}

func (k *controller) OnAck(now time.Duration, acked, lost []congestion.Packet, inflight int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.joined == joinedFirst || k.joined == joinedAll {
		k.coupling.mu.Lock()
		defer k.coupling.mu.Unlock()
	}
	k.flow.OnAck(now, acked, lost, inflight)
}

func (k *controller) CanSend(inflight int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flow.CanSend(inflight)
}

func (k *controller) HasBudget(now time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flow.HasBudget(now)
}

func (k *controller) NextSend() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flow.NextSend()
}

func (k *controller) Window() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flow.Window()
}

func (k *controller) SetPacketSize(bytes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flow.SetPacketSize(bytes)
}

func (k *controller) snapshot() congestion.Snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flow.Snapshot()
}

// statsOf are the statistics of a connection. QUIC counts losses only with its own controller.
func statsOf(qc *quic.Conn, s congestion.Snapshot) quic.ConnectionStats {
	q := qc.ConnectionStats()
	q.PacketsLost, q.BytesLost = s.PacketsLost, s.BytesLost
	return q
}

// coupling is what the congestion controllers of a host have in common: the group of those whose connections cross the
// same inter-domain links, and what paths have carried.
type coupling struct {
	mu    sync.Mutex
	group *congestion.Group
	paths memory
}

func newCoupling() *coupling { return &coupling{group: congestion.NewGroup()} }

// join says that the connection crosses these links, of which each is named by the interface at its start.
func (c *coupling) join(k *controller, links []pathsel.Interface, how joined) {
	names := make([]congestion.Link, len(links))
	for i, l := range links {
		names[i] = congestion.Link(l.String())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.joined >= how {
		return
	}
	k.joined = how
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group.Join(k.flow, names)
}

func (c *coupling) leave(k *controller) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.joined != notJoined {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.group.Leave(k.flow)
	}
	k.joined = left
}

// govern takes over a connection along the route, and has it start at what its path has carried lately.
func (e *Endpoint) govern(qc *quic.Conn, r *route, packetSize int) *controller {
	c := e.host.coupling
	k := newController(e.congestion, packetSize, c)
	key := r.hostPath()
	if was, ok := c.paths.begin(key, time.Now()); ok {
		k.flow.Resume(was.rate, was.rtt)
	}
	e.couple(k, r)
	quic.Control(qc, k)
	e.whenEnded(qc.Context(), func() {
		c.paths.end(key)
		c.leave(k)
	})
	return k
}

// couple tells the host's group along which links the connection goes. Those of an accepted connection are known once the
// control plane has told of its path; before that only the first one is.
func (e *Endpoint) couple(k *controller, r *route) {
	h := e.host
	if len(r.trail) == 0 {
		return
	}
	if ifs, ok := h.lookup.walk(h.ia, r.remote.IA, r.trail); ok {
		starts := make([]pathsel.Interface, 0, len(ifs)/2)
		for i := 0; i < len(ifs); i += 2 {
			starts = append(starts, ifs[i])
		}
		h.coupling.join(k, starts, joinedAll)
		return
	}
	h.coupling.join(k, []pathsel.Interface{{IA: h.ia, ID: uint64(r.trail.first())}}, joinedFirst)
}

// memory is what paths have carried lately, so that a connection does not have to find it out again.
type memory struct {
	mu sync.Mutex
	of map[hostPath]*carried
}

// carried is what a path has carried.
type carried struct {
	rate  float64 // bytes a second
	rtt   time.Duration
	at    time.Time // of that measurement
	users int       // live connections
}

const (
	// rememberFor is how long what a path has carried is worth a try. What a start at it does if that is not true any
	// more is the congestion controller's concern, but it costs losses.
	rememberFor = 2 * time.Minute
	// maxRemembered bounds the table.
	maxRemembered = 4096
)

// begin counts a connection, and is what its path is remembered to carry. That is nothing while another connection uses it,
// since it has only shown what both can share.
func (m *memory) begin(k hostPath, now time.Time) (carried, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of[k]
	if c == nil {
		if m.of == nil {
			m.of = map[hostPath]*carried{}
		}
		for old, o := range m.of {
			if len(m.of) < maxRemembered {
				break
			}
			if o.users == 0 {
				delete(m.of, old)
			}
		}
		c = &carried{}
		m.of[k] = c
	}
	c.users++
	return *c, c.users == 1 && c.rate > 0 && now.Sub(c.at) < rememberFor
}

func (m *memory) end(k hostPath) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.of[k]; c != nil {
		c.users--
	}
}

// note takes in what a connection has just carried. The best of the time remembered counts: an application that asks for
// less does not make the path slower.
func (m *memory) note(k hostPath, rate float64, rtt time.Duration, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.of[k]; c != nil && rtt > 0 && (rate >= c.rate || now.Sub(c.at) >= rememberFor) {
		c.rate, c.rtt, c.at = rate, rtt, now
	}
}
