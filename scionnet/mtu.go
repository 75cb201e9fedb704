package scionnet

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/scionproto/scion/pkg/snet"

	"braid/pathsel"
	"braid/scionnet/congestion"
	"braid/scionnet/quic"
)

// ErrPacketSize says that the path does not carry packets of the connection's size. quic-go cannot
// make them smaller on a live connection. The host remembers the real size, so that the next
// connection over the path uses it.
var ErrPacketSize = errors.New("path does not carry packets of the size that its MTU promises")

const (
	// watchEvery is how often connections are checked for large packets that vanish.
	watchEvery = 500 * time.Millisecond
	// watchFor is the number of checks that must agree. A path that loses everything for a moment
	// must not count as one that carries only small packets. On a slow path the checks are further
	// apart: for each, what was sent before the last one must be acknowledged or lost.
	watchFor = 6
	// minLargeLosses is the number of large packets that must be lost in that time while none
	// arrives.
	minLargeLosses = 4
)

// withKnownMTU lowers the path's MTU for packets to the host if it is known to be less than
// announced.
func (h *Host) withKnownMTU(p pathsel.Path, remote Addr, t trail) pathsel.Path {
	if mtu, ok := h.memory.mtu(hostPath{remote.IA, remote.Host, t}, time.Now()); ok {
		p.MTU = min(p.MTU, mtu)
	}
	return p
}

// mtuTo is the largest SCION packet to send along a route, as far as this end knows.
func (h *Host) mtuTo(r *route) int {
	p := pathsel.Path{MTU: h.mtu}
	if f, ok := h.lookup.find(r.remote.IA, r.trail); ok {
		p.MTU = min(p.MTU, f.path.MTU)
	}
	return h.withKnownMTU(p, r.remote, r.trail).MTU
}

// lowerMTU records that a path carries SCION packets of at most mtu bytes. Bundles get smaller at
// once; connections with larger packets end within watchEvery.
func (h *Host) lowerMTU(k hostPath, mtu int, why string) {
	if !h.memory.lowerMTU(k, mtu, time.Now()) {
		return
	}
	h.log.Info("path carries smaller packets than announced",
		"destination", k.ia, "host", k.host, "mtu", mtu, "noticed_by", why)
	h.routes.each(func(r *route) {
		if r.hostPath() == k {
			r.large.limitTo(mtu - r.headerLen(Addr{Host: h.localIP}))
		}
	})
}

// packetTooBig handles a router's report that a packet of ours was too big. It believes only an MTU
// that is smaller than that packet and has room for QUIC's smallest packets. A forged report of
// less would prevent all dialling. If such a report is true, the path's silence will show it.
func (h *Host) packetTooBig(p *snet.Packet, local Addr, from netip.AddrPort, quote []byte, mtu int) {
	q, r, _, ok := h.verifySCMP(p, local, from, quote)
	if !ok || mtu >= q.size || mtu < leastPacket+q.header {
		h.log.Debug("ignored a packet-too-big message that is not credible", "mtu", mtu, "from", p.Source)
		return
	}
	h.lowerMTU(r.hostPath(), mtu, "packet too big")
}

// largeLoss detects that large packets vanish while small ones arrive, on one connection.
type largeLoss struct {
	seen [watchFor + 1]quic.ConnectionStats // oldest first
	n    int

	seenAt  time.Time // when the last of them was added
	bundles bool      // bundles were in use then
}

// observe adds the current statistics. It returns true if large packets have vanished throughout
// the last watchFor checks, while packets of the peer arrived; size is that of full packets. Either
// full packets were reported lost and none arrived, or nothing at all was acknowledged and most of
// it was full packets. (The second case also covers a path that works only in the other direction.
// That connection is equally dead.)
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
		// No two samples of the round trip are equal to the nanosecond.
		acknowledged = acknowledged || o.seen[i].LatestRTT != first.LatestRTT
	}
	half := o.seen[o.n/2]
	if half.PacketsReceived == first.PacketsReceived || half.PacketsReceived == s.PacketsReceived {
		return false // nothing arrives at all: the path is silent
	}
	lost, sent := int64(s.PacketsLost-first.PacketsLost), int64(s.PacketsSent-first.PacketsSent)
	lostBytes, sentBytes := int64(s.BytesLost-first.BytesLost), int64(s.BytesSent-first.BytesSent)
	full := int64(size)
	if !acknowledged {
		sent, sentBytes = o.sentWhileHeard()
		return sentBytes >= 3*full && sentBytes >= sent*full/4
	}
	if lost < minLargeLosses || lostBytes < lost*full*3/4 {
		return false
	}
	if half.PacketsLost == first.PacketsLost || half.PacketsLost == s.PacketsLost {
		return false // lost at once: what was sent into a silence is reported when that ends
	}
	// The rest has arrived or is in flight. At most a few of those packets can be large, since
	// after these losses the congestion controller does not allow more.
	return sentBytes-lostBytes < 3*full+(sent-lost)*full/8
}

// sentWhileHeard counts what was sent between two checks if a packet from the peer had arrived
// shortly before: in one of the two intervals before. Packets sent during silence are lost because
// of the silence, and quic-go, having backed off, may repeat them only seconds after the path is
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

// judgement is what observations show.
type judgement int

const (
	nothing judgement = iota
	bundlesVanish
	packetsVanish // full packets that travel alone
)

// judge adds the current statistics, and judges all since bundles ended. Packets that vanished in
// bundles say nothing of single packets, so the bundles go first.
func (o *largeLoss) judge(s quic.ConnectionStats, size int, bundles bool) judgement {
	vanish, ended := o.observe(s, size), o.bundles && !bundles
	o.bundles = bundles && !vanish
	switch {
	case ended:
		o.restart()
	case vanish && bundles:
		o.restart()
		return bundlesVanish
	case vanish && size > leastPacket:
		return packetsVanish
	}
	return nothing
}

// last is the latest observation.
func (o *largeLoss) last() quic.ConnectionStats { return o.seen[max(0, o.n-1)] }

// restart forgets all but the last observation.
func (o *largeLoss) restart() { o.seen[0], o.n = o.last(), min(o.n, 1) }

// watch checks the packet sizes and ISD-AS claims of the endpoint's connections until it closes.
func (e *Endpoint) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-tick.C:
		}
		for _, c := range e.list() {
			c.watch()
			_ = c.Proven() // repeats the proof if it is due
		}
	}
}

// fullPart of a path's bandwidth fills it: a connection that carries less has less to send.
const fullPart = 0.8

// tally is what a connection had delivered at the last check.
type tally struct {
	at      time.Time // 0: there was none
	acked   uint64    // bytes acknowledged
	packets uint64    // sent and not lost
}

// delivery is what has been delivered between two checks.
type delivery struct {
	rate  float64 // in bytes a second
	large bool    // packets above the least size were among it
}

// add returns what has been delivered since the last check. ok is false if there was no check
// before, or if it was less than half of watchEvery ago. That happens after a stall: then many
// acknowledgements arrive between two checks, and show no rate. The next check counts them.
func (t *tally) add(s congestion.Snapshot, now time.Time) (d delivery, ok bool) {
	since := now.Sub(t.at)
	if !t.at.IsZero() && since < watchEvery/2 {
		return delivery{}, false
	}
	last := *t
	*t = tally{at: now, acked: s.BytesAcked, packets: s.PacketsSent - s.PacketsLost}
	acked := t.acked - last.acked
	return delivery{
		rate: float64(acked) / since.Seconds(),
		// The bytes in flight at the start and the end of this time are few in comparison.
		large: acked > 100*leastPacket && acked > leastPacket*(t.packets-last.packets),
	}, !last.at.IsZero()
}

// watch records the delivery rate of the path, tells the congestion controller the links, replaces
// expired hop fields, and checks the packet size.
func (c *Conn) watch() {
	e, o := c.endpoint, &c.loss
	s := c.control.Snapshot()
	now := time.Now()
	if d, ok := c.delivered.add(s, now); ok {
		k := c.route.hostPath()
		e.host.memory.note(k, d.rate, s.Bandwidth > 0 && d.rate > fullPart*s.Bandwidth, s.MinRTT, now)
		if d.large {
			e.host.memory.fullPass(k, now)
		}
	}
	e.couple(c.control, c.route)
	e.host.routes.renew(c.route, now)
	q := statsOf(c.quic, s)
	roundTrip := q.SmoothedRTT + 4*q.MeanDeviation // the longest, as QUIC sees it (RFC 9002, section 6.2.1)
	if now.Sub(o.seenAt) >= roundTrip {
		o.seenAt = now
		c.watchSize(q, roundTrip)
	}
	if mtu, ok := e.host.memory.mtu(c.route.hostPath(), now); ok && mtu < c.packetSize+c.route.headerLen(e.addr) {
		c.quic.CloseWithError(codePacketSize, "")
	}
}

// watchSize ends bundles, or lowers the path's MTU, if packets turn out to be too large.
func (c *Conn) watchSize(s quic.ConnectionStats, roundTrip time.Duration) {
	r := c.route
	c.endpoint.packets.probe(r, s.PacketsLost != c.loss.last().PacketsLost, roundTrip)
	switch c.loss.judge(s, c.packetSize, r.large.inUse()) {
	case bundlesVanish:
		r.large.disable()
	case packetsVanish:
		c.endpoint.host.lowerMTU(r.hostPath(), leastPacket+r.headerLen(c.endpoint.addr), "loss of large packets only")
	}
}

// noteCloseReason handles the end of a connection along r. If the peer says that our packets do not
// arrive, they must be smaller from now on.
func (e *Endpoint) noteCloseReason(r *route, err error) {
	app, ok := errors.AsType[*quic.ApplicationError](err)
	if ok && app.Remote && app.ErrorCode == codePacketSize {
		e.host.lowerMTU(r.hostPath(), leastPacket+r.headerLen(e.addr), "peer")
	}
}

// MTUOf is the MTU of a path to a host: the announced one or, if packets have shown that it is
// less, that.
func (h *Host) MTUOf(remote Addr, p pathsel.Path) int {
	f, err := h.resolvePath(context.Background(), remote, p)
	if err != nil {
		return p.MTU
	}
	return h.withKnownMTU(f.path, remote, f.trail).MTU
}
