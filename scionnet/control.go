package scionnet

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"braid/pathsel"
	"braid/scionnet/congestion"
	"braid/scionnet/quic"
)

// DefaultCongestion is the congestion controller of connections for which none is chosen.
const DefaultCongestion = congestion.BBR

// newController is the controller of a new connection. Packets have that size, or more where QUIC
// finds that out. links is nil on IP.
func newController(a congestion.Algorithm, packetSize int, links *quic.Group) *quic.Controller {
	a = cmp.Or(a, DefaultCongestion)
	c := congestion.Config{Algorithm: a, PacketSize: packetSize, Seed: rand.Uint64()}
	return quic.NewController(c, links)
}

// statsOf are the statistics of a connection. QUIC counts losses only with its own controller.
func statsOf(qc *quic.Conn, s congestion.Snapshot) quic.ConnectionStats {
	q := qc.ConnectionStats()
	q.PacketsLost, q.BytesLost = s.PacketsLost, s.BytesLost
	return q
}

// govern takes over a connection along the route, and has it start at what its path has carried
// lately.
func (e *Endpoint) govern(qc *quic.Conn, r *route, packetSize int) *quic.Controller {
	h := e.host
	k := newController(e.congestion, packetSize, h.links)
	key := r.hostPath()
	if was, ok := h.carried.begin(key, time.Now()); ok {
		k.Resume(was.rate, was.rtt)
	}
	e.couple(k, r)
	k.Govern(qc)
	e.whenEnded(qc.Context(), func() {
		h.carried.end(key)
		k.Leave()
	})
	return k
}

// couple tells the host's group along which links the connection goes, each named by the interface
// at its start, and the controller what they are announced to carry. An accepted connection's links
// are known once the control plane has told of its path; before that only the first one is.
func (e *Endpoint) couple(k *quic.Controller, r *route) {
	h := e.host
	if len(r.trail) == 0 {
		return
	}
	ifs, all := h.lookup.walk(h.ia, r.remote.IA, r.trail)
	if !all {
		ifs = []pathsel.Interface{{IA: h.ia, ID: uint64(r.trail.first())}}
	}
	var links []congestion.Link
	for i := 0; i < len(ifs); i += 2 {
		links = append(links, congestion.Link(ifs[i].String()))
	}
	k.Join(links, all)
	if f, ok := h.lookup.find(r.remote.IA, r.trail); ok && f.announced > 0 {
		payload := mostPacket / float64(mostPacket+r.headerLen(e.addr))
		k.Announce(payload * f.announced)
	}
}

// coupleLater couples an accepted connection once its path is known, in time for the start of the
// first download. The endpoint's next round of checks may be too late for that.
func (c *Conn) coupleLater() {
	c.endpoint.host.lookup.spawn(func(ctx context.Context) {
		if c.place.as.prove(ctx, lookupTimeout) {
			c.endpoint.couple(c.control, c.route)
		}
	})
}

// memory is what paths have carried lately, so that a connection does not have to find it out
// again.
type memory struct {
	mu sync.Mutex
	of map[hostPath]*carried
}

// carried is what a path has carried.
type carried struct {
	rate  float64 // bytes a second
	rtt   time.Duration
	at    time.Time // of that measurement
	full  time.Time // when larger packets than the least were last known to pass
	users int       // live connections
}

const (
	// rememberFor is how long what a path has carried is worth a try. What a start at it does if
	// that is not true any more is the congestion controller's concern, but it costs losses.
	rememberFor = 2 * time.Minute
	// maxRemembered bounds the table.
	maxRemembered = 4096
)

// begin counts a connection, and is what its path is remembered to carry. That is nothing while
// another connection uses it, since it has only shown what both can share.
func (m *memory) begin(k hostPath, now time.Time) (carried, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.get(k)
	c.users++
	return *c, c.users == 1 && c.rate > 0 && now.Sub(c.at) < rememberFor
}

func (m *memory) get(k hostPath) *carried {
	if c := m.of[k]; c != nil {
		return c
	}
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
	c := &carried{}
	m.of[k] = c
	return c
}

// fullPass records that larger packets than the least have passed.
func (m *memory) fullPass(k hostPath, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.get(k).full = now
}

// passesFull tells whether they did lately.
func (m *memory) passesFull(k hostPath, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of[k]
	return c != nil && now.Sub(c.full) < fullHolds
}

func (m *memory) end(k hostPath) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.of[k]; c != nil {
		c.users--
	}
}

// note takes in what a connection has just carried. The best of the time remembered counts: an
// application that asks for less does not make the path slower.
func (m *memory) note(k hostPath, rate float64, rtt time.Duration, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.of[k]; c != nil && rtt > 0 && (rate >= c.rate || now.Sub(c.at) >= rememberFor) {
		c.rate, c.rtt, c.at = rate, rtt, now
	}
}
