package congestion

import "time"

// A start that remembers (draft-ietf-tsvwg-careful-resume). What a path carried a minute ago is a
// hint, not a promise: others may use it now. So the flow first sees that the round trip is the
// remembered one, then jumps to half the rate, paced over a round trip, and goes on from there as
// fast as what is delivered allows. If the jump loses packets, it continues at the rate that got
// through.

const (
	jumpPart = 0.5 // of the remembered rate: a path that has halved since then takes it
	// jumpPackets bounds what a jump sends in a round trip, and so what a wrong hint costs. It
	// saves six round trips of doubling.
	jumpPackets = 64 * initialWindow
	knownPart   = 0.9 // delivered of the remembered rate ends startup: the path is as it was
)

// resume is what a new flow remembers.
type resume struct {
	rate  float64       // bytes a second; 0: nothing
	rtt   time.Duration // then
	jump  float64       // rate of the jump
	until time.Duration // it ends; 0: not begun
}

// Resume tells a new flow what the path is remembered to carry, in bytes a second, at which least
// round trip. Call it before the first packet. NewReno ignores it.
func (f *Flow) Resume(rate float64, rtt time.Duration) {
	if b, ok := f.algorithm.(*bbr); ok && b.rounds.total == 0 && rtt > 0 && rate >= minRate && rate <= maxRate {
		b.start.resume = resume{rate: rate, rtt: rtt}
	}
}

// check begins the jump once the round trip is the remembered one.
func (r *resume) check(e event, packetSize int) {
	switch {
	case r.rate == 0 || r.until > 0 || e.rtt == 0:
	case e.rtt < r.rtt/2 || e.rtt > 2*r.rtt: // not the path that was remembered
		*r = resume{}
	default:
		r.jump = min(jumpPart*r.rate, float64(jumpPackets*packetSize)/e.rtt.Seconds())
		// For one round trip nothing of the jump is acknowledged, and in the next it all is.
		r.until = e.now + 2*e.rtt
	}
}

// floor is the least rate of a jump.
func (r *resume) floor(now time.Duration) float64 {
	if now >= r.until {
		return 0
	}
	return r.jump
}

// bound keeps startup from shooting beyond what the path is remembered to carry, while the jump is
// verified.
func (r *resume) bound(now time.Duration, rate float64) float64 {
	if now >= r.until {
		return rate
	}
	return min(max(rate, r.jump), r.rate)
}

// reached says whether the path carries what it did.
func (r *resume) reached(rate float64) bool { return r.rate > 0 && rate >= knownPart*r.rate }
