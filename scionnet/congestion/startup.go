package congestion

import "time"

// On long round trips, initialWindow means so few packets a second that a download of some
// megabytes ends before the path is full. Therefore a flow on a path longer than initialTrip starts
// at the rate that it would have with a round trip of initialTrip. longWindow bounds the packets of
// the first round trip; quic-go starts with as many on every path.
const (
	longWindow  = 32
	initialTrip = 40 * time.Millisecond
)

// SCION announces the rates of links, but others use the links, too. So a flow starts at
// announcedPart of the announced rate, and shares that with this host's other flows along the same
// link. announcedWindow bounds the packets, and so the cost of a wrong announcement.
const (
	announcedPart   = 0.25
	announcedWindow = 128
)

const (
	fullGrowth = 1.25 // less in a round trip is no growth
	fullRounds = 3    // rounds without growth end startup: one may be a hiccup of the receiver

	// startupLoss of what is in flight ends startup at once: no path worth filling loses so much by
	// itself.
	startupLoss = 0.2
	fullLoss    = 0.1 // if the rate has not grown either
	startupLost = 10  // packets, at least

	// overflowLoss of a round, and overflowLost packets at least, end startup if half a round trip of
	// queue stands. A path with jitter may show such a queue, but seldom loses as much meanwhile.
	overflowLoss    = 0.05
	overflowLost    = 3
	overflowPackets = 16 // must have come; fewer may be late by chance
)

// start is how a flow finds the bandwidth of its path: it doubles its rate until the path is full.
type start struct {
	filled   bool          // the bandwidth of the path is known
	ended    time.Duration // when it was found
	full     float64       // bandwidth that growth is compared with
	without  int           // rounds without growth
	overshot overshot      // what was delivered once losses had ended startup
	cwnd     float64       // grows with what is acknowledged until the path is full
	resume   resume
	behind   bool // its least round trip contains a queue of siblings
	rivals   int  // of a jump, as of the last acknowledgement
	// announced is the rate of the narrowest link, in bytes a second; 0: not known. crowd is the
	// number of this host's flows that share one of the links, as of the last acknowledgement: the
	// window is asked for while others may change the group.
	announced float64
	crowd     int
}

// Announce tells a flow the announced rate of its path's narrowest link, in bytes a second. It has
// an effect on startup only. NewReno ignores it.
func (f *Flow) Announce(rate float64) {
	if b, ok := f.algorithm.(*bbr); ok && rate >= minRate && rate <= maxRate {
		b.start.announced = rate
	}
}

// initial is the window of a new flow in bytes. It is paced over a round trip.
func (b *bbr) initial() float64 {
	packet, trips := float64(b.packetSize), b.minRTT.rtt.Seconds()/initialTrip.Seconds()
	w := min(initialWindow*max(1, trips), longWindow) * packet
	if b.start.crowd > 0 {
		part := announcedPart * b.product(b.start.announced) / float64(b.start.crowd)
		w = max(w, min(part, announcedWindow*packet))
	}
	return w
}

// arrived says whether the path carries the announced rate and a queue begins: then there is no
// more to find. Without a queue, the announcement may be too low.
func (b *bbr) arrived() bool {
	return b.start.announced > 0 && b.bandwidth.max() >= knownPart*b.start.announced &&
		b.rounds.minRTT > b.minRTT.rtt+queueMargin(b.minRTT.rtt)
}

// overflows says whether a queue of half the least round trip stands in this round and loses packets:
// the path is full. Going on would take the places of other flows in this queue. If jitter delays
// the packets, there may be no queue, and the losses may be random.
func (b *bbr) overflows() bool {
	r := &b.rounds
	return r.rtts >= overflowPackets && !b.jitter.likely() && r.minRTT > b.minRTT.rtt*3/2+emptyQueue &&
		r.lost >= overflowLost*b.packetSize && float64(r.lost) > overflowLoss*float64(r.delivered+r.lost)
}

// stepStartup ends startup when the path is full, or carries what it is remembered to carry.
func (b *bbr) stepStartup(e event, newRound bool) {
	b.start.resume.check(e)
	if b.start.resume.reached(b.bandwidth.max()) {
		b.start.filled, b.start.ended, b.probe.cruised = true, b.now, b.bandwidth.max()
		b.enter(refill) // and see whether it carries more
	} else if b.arrived() {
		b.fill(e, false)
	} else if newRound {
		b.checkFull(e)
	} else if b.flooded(b.rounds.lost, e.prior, startupLoss) || b.overflows() {
		b.fill(e, true)
	}
}

// flooded says whether so much is lost that startup has gone too far. If only a few packets were
// sent, losses may be chance.
func (b *bbr) flooded(lost, total int, part float64) bool {
	return lost >= startupLost*b.packetSize && float64(lost) > part*float64(total)
}

// checkFull ends startup when the bandwidth no longer grows. One round is enough if much is lost.
func (b *bbr) checkFull(e event) {
	if b.last.samples == 0 { // limited by the application
		return
	}
	if b.bandwidth.max() >= b.start.full*fullGrowth {
		b.start.full, b.start.without = b.bandwidth.max(), 0
		return
	}
	b.start.without++
	lossy := b.flooded(b.last.lost, b.last.delivered+b.last.lost, fullLoss)
	if b.start.without >= fullRounds || lossy {
		b.fill(e, lossy)
	}
}

// fill ends startup. If packets were lost, the bandwidth is the rate at which the packets in flight
// are delivered, not the rate of the burst that a policer let pass before.
func (b *bbr) fill(e event, lossy bool) {
	if lossy {
		b.start.overshot = overshot{until: e.delivered}
		if e.rate > 0 && !b.short() {
			b.bandwidth.clip(max(e.rate, b.rounds.rate()))
		}
	}
	b.start.filled, b.start.ended = true, b.now
	b.enter(drain)
}

// overshot measures how fast a path delivers what was in flight when losses ended startup. That was
// more than it can carry, so this is its own rate. The mean counts: with jitter or beside other
// flows, the least sample is far below it.
type overshot struct {
	until   uint64 // bytes delivered when startup ended; 0: no losses ended it, or the measurement is over
	sum     float64
	samples int
}

// add returns the rate once everything that was in flight has been acknowledged or lost, else 0.
func (o *overshot) add(e event) (rate float64) {
	switch {
	case o.until == 0 || e.rate == 0:
	case e.sentDelivered < o.until:
		o.sum, o.samples = o.sum+e.rate, o.samples+1
	default:
		rate = o.sum / float64(max(1, o.samples))
		*o = overshot{}
	}
	return rate
}
