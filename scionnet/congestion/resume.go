package congestion

import "time"

// A start at a remembered rate (draft-ietf-tsvwg-careful-resume). The rate that a path carried a
// minute ago, for us or for others, may no longer be free. So the flow first checks that the round
// trip is about the remembered one. With its first data it jumps to half of the rate, paced over a
// round trip, and then goes on as the delivered rate allows. If the jump loses so many packets that
// startup ends (startup.go), the flow continues at the delivered rate.

const (
	jumpPart = 0.5 // of the remembered rate: a path that has halved since then takes it
	// jumpPackets bounds what a jump sends in a round trip, and so what it costs if the path has
	// changed. It saves six round trips of doubling. Others may lie, so a hint allows fewer packets
	// (hintPackets), and counts only on long round trips (hintTrip).
	jumpPackets = 64 * initialWindow
	hintPackets = 256
	hintTrip    = initialTrip
	// With this number of packets in flight, a flow sends data, not only a handshake or a
	// keep-alive. A new flow may send them at once.
	dataPackets = 8
	// resumeHolds is how long a flow waits for its first data until it starts like any other.
	resumeHolds = 2 * time.Minute
	knownPart   = 0.9 // delivered of the remembered rate ends startup: the path is as it was
)

// resume is what a new flow remembers, or was told.
type resume struct {
	rate  float64       // bytes a second; 0: nothing
	full  bool          // the path carried no more than that
	rtt   time.Duration // then; 0: we were told
	since time.Duration // when the round trip was known; 0: it is not
	waits bool          // for the first data
	jump  float64       // rate of the jump; 0: there is none
	until time.Duration // the jump ends
}

// Resume tells a new flow the rate that its path carried earlier, in bytes a second, and the least
// round trip of that time. full says that the path was full then; otherwise it may carry more. Call
// Resume before the first packet. NewReno ignores it.
func (f *Flow) Resume(rate float64, rtt time.Duration, full bool) {
	if b, ok := f.algorithm.(*bbr); ok && b.rounds.total == 0 && rtt > 0 && rate >= minRate && rate <= maxRate {
		b.start.resume = resume{rate: rate, rtt: rtt, full: full}
	}
}

// Hint tells a new flow the rate that the path carries according to others, in bytes a second. A
// remembered rate of a full path takes precedence, and a low hint changes nothing. NewReno ignores
// it.
func (f *Flow) Hint(rate float64) {
	b, ok := f.algorithm.(*bbr)
	if ok && !b.start.filled && !b.start.resume.full && b.start.resume.jump == 0 && rate >= minRate && rate <= maxRate {
		b.start.resume = resume{rate: rate}
	}
}

// check looks whether the round trip is the remembered one.
func (r *resume) check(e event) {
	switch {
	case r.rate == 0 || r.since > 0 || e.rtt == 0:
	case r.rtt == 0 && e.rtt < hintTrip,
		r.rtt > 0 && (e.rtt < r.rtt/2 || e.rtt > 2*r.rtt): // not the path that was remembered
		*r = resume{}
	default:
		r.since, r.waits = e.now, true
	}
}

// beginJump begins the jump with the first data, unless the flow starts as fast without it.
// inflight are the bytes in flight before it.
func (b *bbr) beginJump(now time.Duration, inflight int) {
	r := &b.start.resume
	if !r.waits || inflight < dataPackets*b.packetSize {
		return
	}
	r.waits = false
	if now > r.since+resumeHolds {
		*r = resume{}
		return
	}
	most := jumpPackets
	if r.rtt == 0 {
		most = hintPackets
	}
	rtt := b.minRTT.rtt
	volume := float64(most*b.packetSize) / max(rtt, shortTime).Seconds()
	jump := min(jumpPart*r.rate/float64(1+b.start.rivals), volume)
	if jump > b.initial()/max(rtt, hostTime).Seconds() {
		// For one round trip nothing of the jump is acknowledged, and in the next it all is.
		r.jump, r.until = jump, now+2*rtt
	}
}

// rivals counts the flows of this host that use what the path carries, or are about to: those on
// its least shared link. More than mostRivals leave nothing to jump to.
func (b *bbr) rivals() (n int) {
	const mostRivals = 64
	var least *sharedLink
	for _, l := range b.member.links {
		if least == nil || len(l.members) < len(least.members) {
			least = l
		}
	}
	if least == nil {
		return 0
	}
	for _, m := range least.members {
		if m != b.member && (m.waits || !b.silent(m)) {
			if n++; n == mostRivals {
				break
			}
		}
	}
	return n
}

// floor is the least rate of a jump.
func (r *resume) floor(now time.Duration) float64 {
	if now >= r.until {
		return 0
	}
	return r.jump
}

// bound limits startup to the remembered rate of a full path while the jump is verified.
func (r *resume) bound(now time.Duration, rate float64) float64 {
	switch {
	case now >= r.until:
		return rate
	case r.full:
		return min(max(rate, r.jump), r.rate)
	}
	return max(rate, r.jump)
}

// reached says whether the path carries the remembered rate of a full path again.
func (r *resume) reached(rate float64) bool { return r.full && rate >= knownPart*r.rate }
