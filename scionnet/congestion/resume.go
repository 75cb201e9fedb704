package congestion

import "time"

// A start that remembers (draft-ietf-tsvwg-careful-resume). What a path carried a minute ago, to us
// or to others, is no promise: others may use it now. So the flow first sees that the round trip is
// the remembered one. With its first data it jumps to half the rate, paced over a round trip, and
// goes on from there as fast as what is delivered allows. If the jump loses packets, it continues at
// the rate that got through.

const (
	jumpPart = 0.5 // of the remembered rate: a path that has halved since then takes it
	// jumpPackets bounds what a jump sends in a round trip, and so what it costs if the path has
	// changed. It saves six round trips of doubling. Others may lie, so their word counts for less
	// (hintPackets).
	jumpPackets = 64 * initialWindow
	hintPackets = 256
	knownPart   = 0.9 // delivered of the remembered rate ends startup: the path is as it was
)

// resume is what a new flow remembers.
type resume struct {
	rate  float64       // bytes a second; 0: nothing
	most  int           // packets of the jump
	rtt   time.Duration // then; 0: not known
	jump  float64       // rate of the jump; 0: the round trip is not known yet
	until time.Duration // the jump ends; 0: there was nothing to send yet
}

// Resume tells a new flow what the path is remembered to carry, in bytes a second, at which least
// round trip. Call it before the first packet. NewReno ignores it.
func (f *Flow) Resume(rate float64, rtt time.Duration) {
	if b, ok := f.algorithm.(*bbr); ok && b.rounds.total == 0 && rtt > 0 && rate >= minRate && rate <= maxRate {
		b.start.resume = resume{rate: rate, most: jumpPackets, rtt: rtt}
	}
}

// Hint tells a new flow what others say that the path carries, in bytes a second. What it remembers
// itself counts more. NewReno ignores it.
func (f *Flow) Hint(rate float64) {
	b, ok := f.algorithm.(*bbr)
	if ok && !b.start.filled && b.start.resume.rate == 0 && rate >= minRate && rate <= maxRate {
		b.start.resume = resume{rate: rate, most: hintPackets}
	}
}

// check prepares the jump once the round trip is the remembered one. The flow leaves room for so
// many others of this host that send along the same links.
func (r *resume) check(e event, packetSize, others int) {
	switch {
	case r.rate == 0 || r.jump > 0 || e.rtt == 0:
	case r.rtt > 0 && (e.rtt < r.rtt/2 || e.rtt > 2*r.rtt): // not the path that was remembered
		*r = resume{}
	default:
		r.jump = min(jumpPart*r.rate/float64(1+others), float64(r.most*packetSize)/e.rtt.Seconds())
	}
}

// sent begins the jump with the first data: so much is never in flight before it. A peer may take
// long to ask for data.
func (r *resume) sent(now time.Duration, inflight, packetSize int, rtt time.Duration) {
	if r.jump > 0 && r.until == 0 && inflight >= minWindow*packetSize {
		// For one round trip nothing of the jump is acknowledged, and in the next it all is.
		r.until = now + 2*rtt
	}
}

// jumps says whether the jump is prepared, or not verified yet.
func (r *resume) jumps(now time.Duration) bool { return r.jump > 0 && (r.until == 0 || now < r.until) }

// floor is the least rate of a jump.
func (r *resume) floor(now time.Duration) float64 {
	if !r.jumps(now) {
		return 0
	}
	return r.jump
}

// bound keeps startup from shooting beyond what the path is remembered to carry, while the jump is
// verified.
func (r *resume) bound(now time.Duration, rate float64) float64 {
	if !r.jumps(now) {
		return rate
	}
	return min(max(rate, r.jump), r.rate)
}

// reached says whether the path carries what it did.
func (r *resume) reached(rate float64) bool { return r.rate > 0 && rate >= knownPart*r.rate }
