package scionnet

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/scionproto/scion/pkg/snet"

	"braid/pathsel"
	"braid/scionnet/quic"
)

// ErrPacketSize says that the path does not carry packets as large as the connection sends: quic-go
// cannot make them smaller under a live connection. What was found is remembered, so that the next
// connection over the path fits it.
var ErrPacketSize = errors.New("path does not carry packets of the size that its MTU promises")

const (
	// mtuHolds is how long a path's real MTU is believed to be less than announced. Then it is
	// tried again.
	mtuHolds = 10 * time.Minute
	// maxMTUs bounds the table: each entry needs a packet of ours that was sent.
	maxMTUs = 4096
	// watchEvery is how often connections are looked at for large packets that vanish.
	watchEvery = 500 * time.Millisecond
	// watchFor is how many such looks must agree: a path that loses everything for a moment is not
	// one that carries small packets only.
	watchFor = 6
	// holeLosses is how many large packets must be lost in that time, and none arrive.
	holeLosses = 4
)

// mtus is what is known of paths that carry less than they announce.
type mtus struct {
	mu    sync.Mutex
	found map[hostPath]mtuFound
}

// hostPath is a path and the host at its end, whose own network may be the narrowest part. What one
// connection along it shows holds for the others.
type hostPath struct {
	ia    pathsel.IA
	host  netip.Addr
	trail trail
}

func (r *route) hostPath() hostPath { return hostPath{r.remote.IA, r.remote.Host, r.trail} }

type mtuFound struct {
	mtu   int
	until time.Time
}

func (m *mtus) get(k hostPath, now time.Time) (int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.found[k]
	if ok && !now.Before(f.until) {
		delete(m.found, k)
		return 0, false
	}
	return f.mtu, ok
}

// put notes an MTU and tells whether it is less than what was known.
func (m *mtus) put(k hostPath, mtu int, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, ok := m.found[k]; ok && f.mtu <= mtu && now.Before(f.until) {
		return false
	}
	if m.found == nil || len(m.found) >= maxMTUs {
		m.found = map[hostPath]mtuFound{}
	}
	m.found[k] = mtuFound{mtu, now.Add(mtuHolds)}
	return true
}

// corrected is the path with the MTU that it has for packets to the host, if that is known to be
// less than announced.
func (h *Host) withKnownMTU(p pathsel.Path, remote Addr, t trail) pathsel.Path {
	if mtu, ok := h.mtus.get(hostPath{remote.IA, remote.Host, t}, time.Now()); ok {
		p.MTU = min(p.MTU, mtu)
	}
	return p
}

// mtuTo is the largest SCION packet to send along a route, as far as is known at this end.
func (h *Host) mtuTo(r *route) int {
	p := pathsel.Path{MTU: h.mtu}
	if f, ok := h.lookup.find(r.remote.IA, r.trail); ok {
		p.MTU = min(p.MTU, f.path.MTU)
	}
	return h.withKnownMTU(p, r.remote, r.trail).MTU
}

// narrow takes in that a path carries SCION packets of that many bytes only. Bundles get smaller at
// once; connections whose packets are too large end within watchEvery.
func (h *Host) lowerMTU(k hostPath, mtu int, why string) {
	if !h.mtus.put(k, mtu, time.Now()) {
		return
	}
	h.log.Info("path carries less than announced", "destination", k.ia, "host", k.host, "mtu", mtu, "noticed_by", why)
	h.routes.each(func(r *route) {
		if r.remote.IA == k.ia && r.remote.Host == k.host && r.trail == k.trail {
			r.large.limitTo(mtu - r.headerLen(Addr{Host: h.localIP}))
		}
	})
}

// tooBig takes in what a router says of a packet of ours. A message that says nothing new of the
// packet counts for nothing. Nor does one by which not even QUIC's least packets pass: if that is
// true nothing will arrive, which shows; if it is not, it would keep the path from being dialled.
func (h *Host) packetTooBig(p *snet.Packet, local Addr, from netip.AddrPort, quote []byte, mtu int) {
	q, r, _, ok := h.verifySCMP(p, local, from, quote)
	if !ok || mtu >= q.size || mtu < leastPacket+q.header {
		h.log.Debug("packet too big, but it is no witness who says so, or not true", "mtu", mtu, "from", p.Source)
		return
	}
	h.lowerMTU(r.hostPath(), mtu, "packet too big")
}

// holes looks for large packets that vanish while small ones arrive. It is a state of one
// connection.
type largeLoss struct {
	seen [watchFor + 1]quic.ConnectionStats // the oldest first
	n    int

	at    time.Time // of the last look
	acked uint64    // bytes by then
}

// look takes in the statistics of now, and tells whether large packets have vanished throughout the
// last watchFor looks, while the peer was heard. size is that of the connection's full packets.
// Either some were found to be lost and none arrived; or there was no acknowledgement at all of
// what was sent, most of it full packets. (The latter is also how a path looks that carries nothing
// any more this way, and works the other way: its connection is as lost.)
func (o *largeLoss) observe(s quic.ConnectionStats, size int) bool {
	if o.n == len(o.seen) {
		copy(o.seen[:], o.seen[1:])
		o.n--
	}
	o.seen[o.n] = s
	o.n++
	if o.n < len(o.seen) {
		return false
	}
	first := o.seen[0]
	acknowledged := false
	for i := 1; i < o.n; i++ {
		// Two round trips are never of the same length, to the nanosecond.
		acknowledged = acknowledged || o.seen[i].LatestRTT != first.LatestRTT
	}
	if half := o.seen[o.n/2].PacketsReceived; half == first.PacketsReceived || half == s.PacketsReceived {
		return false // nothing at all arrives: that is silence
	}
	lost, sent := int64(s.PacketsLost-first.PacketsLost), int64(s.PacketsSent-first.PacketsSent)
	lostBytes, sentBytes := int64(s.BytesLost-first.BytesLost), int64(s.BytesSent-first.BytesSent)
	full := int64(size)
	if !acknowledged {
		sent, sentBytes = o.sentWhileHeard()
		return sentBytes >= 3*full && sentBytes >= sent*full/4
	}
	if lost < holeLosses || lostBytes < lost*full*3/4 {
		return false
	}
	// What was not lost has arrived or is on its way: at most a packet or two can be large, since
	// after so many losses no more are let go.
	return sentBytes-lostBytes < 3*full+(sent-lost)*full/8
}

// sentWhileHeard is what was sent from one look to the next, where the peer had been heard shortly
// before: between two of the looks before those. What was sent while nothing at all arrived is lost
// for that reason, and quic-go, having backed off, may repeat it only seconds after the path is
// back.
func (o *largeLoss) sentWhileHeard() (packets, bytes int64) {
	heard := func(i int) bool { return i > 0 && o.seen[i].PacketsReceived != o.seen[i-1].PacketsReceived }
	for i := 2; i < o.n; i++ {
		if heard(i-1) || heard(i-2) {
			packets += int64(o.seen[i].PacketsSent - o.seen[i-1].PacketsSent)
			bytes += int64(o.seen[i].BytesSent - o.seen[i-1].BytesSent)
		}
	}
	return packets, bytes
}

// last is what was seen last.
func (o *largeLoss) last() quic.ConnectionStats { return o.seen[max(0, o.n-1)] }

// watch looks after packet sizes on the endpoint's connections, and claims of ISD-ASes, until it
// closes.
func (e *Endpoint) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	watched := map[*Conn]*largeLoss{}
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-tick.C:
		}
		conns := e.list()
		before := watched
		watched = make(map[*Conn]*largeLoss, len(conns))
		for _, c := range conns {
			o := before[c]
			if o == nil {
				o = &largeLoss{}
			}
			watched[c] = o
			c.watch(o)
			_ = c.Proven() // has it looked into again
		}
	}
}

// watch tells what the path carries and where it leads, and has the packet size looked at.
func (c *Conn) watch(o *largeLoss) {
	e := c.endpoint
	s := c.control.snapshot()
	now := time.Now()
	if !o.at.IsZero() {
		k := c.route.hostPath()
		e.host.coupling.paths.note(k, float64(s.BytesAcked-o.acked)/now.Sub(o.at).Seconds(), s.MinRTT, now)
	}
	o.at, o.acked = now, s.BytesAcked
	e.couple(c.control, c.route)
	c.watchSize(o, statsOf(c.quic, s))
}

// watchSize ends bundles or the connection if its packets turn out to be too large.
func (c *Conn) watchSize(o *largeLoss, s quic.ConnectionStats) {
	h, r := c.endpoint.host, c.route
	if f, ok := c.endpoint.packets.(framer); ok {
		f.probe(r, s.PacketsLost != o.last().PacketsLost)
	}
	k := r.hostPath()
	header := r.headerLen(c.endpoint.addr)
	if c.packetSize > leastPacket && o.observe(s, c.packetSize) {
		h.lowerMTU(k, leastPacket+header, "loss of large packets only")
	}
	if mtu, ok := h.mtus.get(k, time.Now()); ok && mtu < c.packetSize+header {
		c.quic.CloseWithError(codePacketSize, "")
	}
}

// noteSize takes in why a connection along r has ended: if the peer says that its packets do not
// arrive, ours are to be smaller as well.
func (e *Endpoint) noteCloseReason(r *route, err error) {
	var app *quic.ApplicationError
	if errors.As(err, &app) && app.Remote && app.ErrorCode == codePacketSize {
		e.host.lowerMTU(r.hostPath(), leastPacket+r.headerLen(e.addr), "peer")
	}
}
