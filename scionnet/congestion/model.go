package congestion

import "time"

// What a BBR flow believes of its path: bandwidth, propagation delay, and how acknowledgements
// bunch.

// bandwidth is the greatest delivery rate of the last two probing cycles. So one bad probe does not
// lower it, and older cycles no longer count.
type bandwidth struct {
	cycles [2]float64 // bytes a second, the present cycle last
	limit  float64    // what a congested path delivered since the last probe; 0: not congested
}

func (b *bandwidth) max() float64 { return max(b.cycles[0], b.cycles[1]) }

// now is the rate to plan with.
func (b *bandwidth) now() float64 {
	if b.limit > 0 {
		return min(b.limit, b.max())
	}
	return b.max()
}

func (b *bandwidth) add(rate float64) { b.cycles[1] = max(b.cycles[1], rate) }

// advance begins a cycle. A cycle without a sample (the application sent little) is not one.
func (b *bandwidth) advance() {
	if b.cycles[1] > 0 {
		b.cycles[0], b.cycles[1] = b.cycles[1], 0
	}
}

// clip forgets what is above the rate.
func (b *bandwidth) clip(rate float64) {
	b.cycles[0], b.cycles[1] = min(b.cycles[0], rate), min(b.cycles[1], rate)
}

// minRTTWindow is how long the least round trip counts. A longer route or a queue that never
// empties shows after this time, when a flow drains what it has in flight to see (ProbeRTT).
const minRTTWindow = 10 * time.Second

// propagation is the least round trip that counts.
type propagation struct {
	rtt time.Duration // 0: not measured
	at  time.Duration // when it was last seen
}

func (p *propagation) expired(now time.Duration) bool {
	return p.rtt > 0 && now > p.at+minRTTWindow
}

// add takes a sample. One that is longer by at most the tolerance confirms the least one.
func (p *propagation) add(now, rtt, tolerance time.Duration) {
	switch {
	case p.rtt == 0 || rtt < p.rtt:
		p.rtt, p.at = rtt, now
	case rtt <= p.rtt+tolerance:
		p.at = now
	}
}

// aggregation is how much more than expected is acknowledged at once: links and receivers collect
// acknowledgements, and the window must cover what is delivered but not acknowledged yet.
type aggregation struct {
	since  time.Duration // when counting began
	acked  float64       // bytes since then
	extra  [2]float64    // greatest excess of the last and of this period
	rounds int           // of this period
}

// aggregationRounds is the length of a period: an excess counts for one to two of them.
const aggregationRounds = 5

func (a *aggregation) add(now time.Duration, acked int, rate float64, newRound bool) {
	if newRound {
		if a.rounds++; a.rounds >= aggregationRounds {
			a.extra, a.rounds = [2]float64{a.extra[1], 0}, 0
		}
	}
	expected := rate * (now - a.since).Seconds()
	if a.acked <= expected || a.acked > maxWindow { // the excess is used up: begin again
		a.since, a.acked, expected = now, 0, 0
	}
	a.acked += float64(acked)
	a.extra[1] = max(a.extra[1], a.acked-expected)
}

func (a *aggregation) bytes() float64 { return max(a.extra[0], a.extra[1]) }

// jitter tells jitter from queues. Jitter can delay all packets, too: packets arrive in order, so
// each waits for a late one before it. But round trips through a queue change slowly. With jitter
// they fall in nearly every round, because many packets arrive together with a late one.
type jitter struct {
	rounds float64 // that were delayed, at most jitterRounds
	falls  float64 // the part of these with a clear fall; recent rounds count most
}

const (
	jitterRounds = 16
	// jitterFall is the least fall that counts, as a part of the mean delay.
	jitterFall = 0.25
	// jitterLikely is the part of the delayed rounds that must have a fall. In the simulator, nine
	// of ten have one if the jitter is a quarter of the round trip or more. Three of ten at most
	// have one if there is no jitter, but a flow of the kernel.
	jitterLikely = 0.5
)

// add takes a round whose packets were all delayed.
func (j *jitter) add(r rounds, least time.Duration) {
	fell := 0.0
	if r.fall.Seconds() > jitterFall*(r.meanRTT()-least).Seconds() {
		fell = 1
	}
	j.rounds = min(j.rounds+1, jitterRounds)
	j.falls += (fell - j.falls) / j.rounds
}

func (j *jitter) likely() bool { return j.falls >= jitterLikely }

// hostTime is the time that both hosts may add to a round trip: processes wait for the CPU, and
// acknowledgements are collected. If the path itself takes less, round trips vary too much to be
// compared.
const hostTime = time.Millisecond

// rounds counts round trips: one ends when a packet that was sent after its beginning is
// acknowledged, and not before hostTime.
type rounds struct {
	end       uint64 // bytes delivered
	began     time.Duration
	count     int
	delivered int // bytes in this round
	lost      int
	total     uint64 // bytes since the start
	minRTT    time.Duration
	maxRTT    time.Duration
	fall      time.Duration // from a round trip to a later one, the greatest
	sumRTT    time.Duration
	rtts      int
	rates     float64 // sum of the delivery rates of this round, and their number
	samples   int
	whole     float64 // delivery rate from its beginning to its end
}

// rate is the mean of the round's samples. The greatest would follow every acknowledgement that
// jitter brings early, the mean follows the path.
//
// If a round trip is shorter than hostTime, samples depend on the scheduler. Then the rate of the
// whole round counts.
func (r *rounds) rate() float64 {
	if r.minRTT < hostTime {
		return r.whole
	}
	if r.samples == 0 {
		return 0
	}
	return r.rates / float64(r.samples)
}

func (r *rounds) meanRTT() time.Duration { return r.sumRTT / time.Duration(max(r.rtts, 1)) }

// add returns the previous round when a new one begins.
func (r *rounds) add(e event) (last rounds, ended bool) {
	if e.rtt > 0 && e.sentDelivered >= r.end && (r.count == 0 || e.now >= r.began+hostTime) {
		last, ended = *r, true
		if r.count > 0 {
			last.whole = float64(r.delivered) / (e.now - r.began).Seconds()
		}
		*r = rounds{end: e.delivered, began: e.now, count: r.count + 1}
	}
	r.delivered += e.acked
	r.lost += e.lost
	r.total = e.delivered
	if e.rtt > 0 {
		r.sumRTT, r.rtts = r.sumRTT+e.rtt, r.rtts+1
		r.maxRTT = max(r.maxRTT, e.rtt)
		r.fall = max(r.fall, r.maxRTT-e.rtt)
	}
	if e.rtt > 0 && (r.minRTT == 0 || e.rtt < r.minRTT) {
		r.minRTT = e.rtt
	}
	if e.rate > 0 && !e.appLimited {
		r.rates, r.samples = r.rates+e.rate, r.samples+1
	}
	return last, ended
}
