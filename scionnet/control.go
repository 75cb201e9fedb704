package scionnet

import (
	"cmp"
	"context"
	"math/rand/v2"
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
	if was, ok := h.memory.begin(key, time.Now()); ok {
		k.Resume(was.rate, was.rtt, was.full)
	}
	e.couple(k, r)
	k.Govern(qc)
	e.whenEnded(qc.Context(), func() {
		h.memory.end(key)
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
