package congestion

import (
	"math/rand/v2"
	"time"
)

// BBR, after draft-ietf-ccwg-bbr (version 3): send at the rate at which the path delivers, keep
// about what fits on the path in flight, and look for more now and then.
//
//	startup ──► drain ──► down ──► cruise ──► refill ──► up
//	                       ▲                              │
//	                       └──────────────────────────────┘
//	any state ──► probe rtt ──► cruise, once no round trip has been seen without a queue for 10 s
//
// This file moves a flow through these phases. What each acknowledgement shows of the path is in
// model.go, when startup ends in startup.go, how probes go in probe.go, what losses mean in loss.go
// and trial.go, and the window and the rate that follow from all of it in output.go.
//
// It differs from the draft where the draft fails on lossy or short-queued paths:
//
//   - Losses count above the path's ambient loss only. Those of an outage neither end startup nor
//     lower the rate (loss.go).
//   - The rate of a round trip is the mean of its samples, not the greatest (model.go): jitter does
//     not raise it. Jitter that delays all packets is not taken for a queue.
//   - A probe that ends in losses shows the rate of the path, and higher estimates are dropped. So
//     the burst that a policer lets pass is not remembered as bandwidth.
//   - A probe ends as soon as the queue that it makes is as long as queueMargin allows, even if the
//     rate still grows.
//   - A queue-free round trip is seen in every "down", so that "probe rtt" is rare.
//   - It cruises at the full rate of the path where there is neither a queue nor a sign of others,
//     not at 0.99 of it.
//   - It gives way when a queue stands that it has not made alone (yield.go), in place of the
//     draft's lower bounds after any loss.
type bbr struct {
	packetSize int
	random     *rand.Rand
	member     *member // of a group; alone in its own if it is in none
	company    company
	now        time.Duration

	phase phase
	since time.Duration // when it began
	began int           // number of the round then
	idle  bool          // restarted from idle: no probe on top

	// The path.
	bandwidth bandwidth
	total     bandwidth // of the flows behind the same queue
	minRTT    propagation
	rounds    rounds
	last      rounds // the last complete round
	jitter    jitter
	acks      aggregation
	lossy     float64 // part of the recent rounds that lost packets
	drops     drops
	ambient   ambient
	trial     trial

	start    start
	probe    probe
	rttProbe rttProbe
	yield    yield
}

type phase int

const (
	startup phase = iota
	drain
	down
	cruise
	refill
	up
	probeRTT
)

var phaseNames = [...]string{"startup", "drain", "down", "cruise", "refill", "up", "probe rtt"}

const (
	probeRTTTime = 200 * time.Millisecond
	probeRTTGain = 0.5
	// standingTime is how long a queue stands before a flow drains what it has in flight to see
	// whether the path is shorter than it thinks. Flows of many hosts that have started in each
	// other's queues do not know. As soon as one drains, all see a lower round trip, and so they
	// drain together the next time.
	standingTime = 5 * time.Second

	emptyQueue = 2 * time.Millisecond // jitter and timers make as much

	// A round with losses counts among the last lossyRounds or so.
	lossyRounds = 32
	// If a queue stands and more than this part of the rounds lose packets, others do not respond
	// to losses: either they are the kernel's BBR, or the losses are random.
	unyielding = 0.18
)

// queueMargin is how much a probe may add to the round trip: a part of it, and not below what
// jitter and timers make, nor above what people notice.
func queueMargin(rtt time.Duration) time.Duration {
	return min(max(rtt/8, 4*time.Millisecond), 15*time.Millisecond)
}

func newBBR(packetSize int, seed uint64) *bbr {
	return &bbr{
		packetSize: packetSize, start: start{cwnd: float64(initialWindow * packetSize)},
		random: rand.New(rand.NewPCG(seed, 0)), member: &member{},
		company: company{part: 1, probe: 1, scale: 1}, yield: yield{rivals: aloneAfter},
	}
}

func (b *bbr) enter(p phase) { b.phase, b.since, b.began = p, b.now, b.rounds.count }

// elapsed is the number of complete rounds of this phase.
func (b *bbr) elapsed() int { return b.rounds.count - b.began - 1 }

// delayed says whether all packets of the last round took clearly longer than the least round trip.
func (b *bbr) delayed() bool { return b.last.minRTT > b.minRTT.rtt+queueMargin(b.minRTT.rtt) }

// queued says whether a queue stood for the whole of the last round.
func (b *bbr) queued() bool { return b.delayed() && !b.jitter.likely() }

// shaken says whether jitter, and not a queue, delayed all packets of the last round.
func (b *bbr) shaken() bool { return b.delayed() && b.jitter.likely() }

// empty says whether a packet of the last round found next to no queue.
func (b *bbr) empty() bool { return b.last.minRTT <= b.minRTT.rtt+emptyQueue }

// overflown says whether a loss now comes from a full queue that others fill as well, and whether
// these others respond to losses.
func (b *bbr) overflown() bool { return b.queued() && b.company.lossy <= unyielding }

// short says whether the hosts take a larger part of the round trip than the path.
func (b *bbr) short() bool { return b.minRTT.rtt > 0 && b.minRTT.rtt < hostTime }

// product is the volume that fits on the path without a queue.
func (b *bbr) product(rate float64) float64 { return rate * b.minRTT.rtt.Seconds() }

// room is the product or, on a short path, the volume that the hosts need. The ceiling bounds it if
// the queue is shorter.
func (b *bbr) room(rate float64) float64 {
	if b.short() {
		return rate * shortTime.Seconds()
	}
	return b.product(rate)
}

func (b *bbr) onSent(now time.Duration, inflight int, appLimited bool) {
	b.beginJump(now, inflight)
	if inflight == 0 && appLimited && now > b.now+b.minRTT.rtt {
		// Restart from idle: the queue is empty, and the rate of before is the best guess. What was
		// on its way when the flow fell silent says nothing of ambient loss.
		b.idle = true
		b.minRTT.at = max(b.minRTT.at, now-minRTTWindow+2*b.minRTT.rtt) // silence is no queue
		b.rttProbe.at = now
		b.acks.since, b.acks.acked = now, 0
		if b.phase == up || b.phase == refill {
			b.now = now
			b.goDown()
		}
	}
}

func (b *bbr) onAck(e event) {
	b.now = e.now
	if e.outage() {
		b.startTrial()
		if !b.start.filled {
			e.lost, e.rate = 0, 0 // else they would end startup, or be taken for the path's rate
		}
	}
	last, newRound := b.rounds.add(e)
	if newRound {
		b.last = last
		b.idle = false
		b.lossy -= b.lossy / lossyRounds
		if last.lost > 0 {
			b.lossy += 1.0 / lossyRounds
		}
		if b.delayed() {
			b.jitter.add(last, b.minRTT.rtt)
		}
		b.drops.add(last)
		b.noticeRoom()
		b.noticeVacated()
		b.compare()
		b.giveWay(e.limitedNow)
	}
	b.measure(e, newRound)
	before := b.minRTT.rtt
	expired := e.rtt > 0 && b.addRTT(e)
	if b.minRTT.rtt != before {
		b.start.behind = b.behindQueue()
		if b.phase == cruise && b.minRTT.rtt < before-queueMargin(b.minRTT.rtt) {
			b.probe.at = b.now // a queue has gone that passed for the path
		}
	}
	look := expired || b.waitsLong()
	if b.start.filled && b.phase != probeRTT && (look || b.member.drains > b.minRTT.at) {
		if look {
			b.drainAll()
		}
		probes := b.phase == refill || b.phase == up || e.now >= b.probe.at
		b.rttProbe = rttProbe{at: e.now, forget: expired, probes: probes}
		b.enter(probeRTT)
	}
	switch b.phase { // losses first: they may end a probe
	case refill, up:
		b.endByLosses(e)
	case down, cruise:
		b.tryLosses(e)
	}
	b.step(e, newRound)
	b.publish(e)
	if !b.start.filled {
		b.start.crowd = b.member.crowd()
		if b.start.resume.waits {
			b.start.rivals = b.rivals()
		}
		b.start.cwnd = min(max(b.start.cwnd, b.room(b.start.resume.floor(b.now)))+float64(e.acked), maxWindow)
	}
}

// addRTT adds a round trip, and returns whether the least one is too old. With jitter the exact
// value may not come again, so a similar one confirms it. If many rounds lose packets, it has to be
// almost the same: a full queue of many hosts would pass for the path.
func (b *bbr) addRTT(e event) (expired bool) {
	tolerance := time.Millisecond / 2
	if b.company.lossy <= unyielding {
		tolerance += b.minRTT.rtt / 32
	}
	expired = b.minRTT.expired(e.now)
	b.minRTT.add(e.now, e.rtt, tolerance)
	return expired
}

// waitsLong says whether a queue has stood for standingTime. Flows with siblings do not look for a
// shorter path then: they all drain when one of them has to (drainAll).
func (b *bbr) waitsLong() bool {
	return b.company.part == 1 && b.standing() && b.now > max(b.minRTT.at, b.rttProbe.at)+standingTime
}

// measure updates the bandwidth and the ambient loss.
func (b *bbr) measure(e event, newRound bool) {
	rate, appLimited := e.rate, e.appLimited
	if b.short() {
		if rate = 0; newRound {
			rate, appLimited = b.last.rate(), b.last.samples == 0
		}
	}
	if !b.start.filled {
		if rate > 0 && (!appLimited || rate > b.bandwidth.max()) {
			b.bandwidth.add(rate)
		}
	} else if newRound && b.last.samples > 0 && b.probed() {
		b.bandwidth.add(b.last.rate())
	} else if appLimited && rate > b.bandwidth.max() {
		b.bandwidth.add(rate)
	}
	if rate := b.start.overshot.add(e); rate > 0 && !b.short() {
		b.bandwidth.clip(rate)
		b.bandwidth.add(rate)
	}
	b.acks.add(e.now, e.acked, b.bandwidth.now(), newRound)
}

// probed says whether the round that ended shows the effect of a probe. Other rounds deliver what
// was sent, and the greatest of many of them would be chance.
func (b *bbr) probed() bool {
	return b.phase == refill || b.phase == up || b.phase == down && b.elapsed() <= 1 && !b.probe.failed
}

// step moves from phase to phase.
func (b *bbr) step(e event, newRound bool) {
	switch b.phase {
	case startup:
		b.stepStartup(e, newRound)
	case drain:
		if b.drained(e) {
			b.goDown()
			if b.start.behind {
				b.drainAll()
			}
		}
	case down:
		if b.drained(e) {
			b.enter(cruise)
		}
	case cruise:
		b.stepCruise(e)
	case refill:
		b.stepRefill(newRound)
	case up:
		b.stepUp(e, newRound)
	case probeRTT:
		b.stepProbeRTT(e, newRound)
	}
}

func (b *bbr) drained(e event) bool {
	return float64(e.inflight) <= b.room(b.bandwidth.now()) || b.elapsed() >= 3
}

// drainAll has all flows behind the same queue look for the least round trip.
func (b *bbr) drainAll() {
	for m := range b.member.together {
		m.drains = b.now
	}
}

// rttProbe is what a flow sees in "probe rtt".
type rttProbe struct {
	at     time.Duration // when the phase began
	forget bool          // the least round trip is too old
	until  time.Duration // when the phase ends if the round trips do not agree; 0: too much is in flight
	least  time.Duration // round trip of the last round
	probes bool          // a probe for bandwidth was due or under way when the phase began
	falls  bool          // it was clearly less than that of the round before
}

// stepProbeRTT waits until little is in flight, then until round trips no longer fall from round to
// round, and until those of one round agree: no queue is left. With jitter they may never agree, so
// that wait ends after probeRTTTime. A least round trip that has not expired is kept unless a lower
// one comes: a sibling that starts may keep a queue.
func (b *bbr) stepProbeRTT(e event, newRound bool) {
	p := &b.rttProbe
	if p.until == 0 {
		if e.inflight <= b.window() {
			p.until, p.falls = e.now+max(probeRTTTime, b.last.minRTT), true
			if p.forget {
				b.minRTT = propagation{} // what is measured from now on
			}
		}
		return
	}
	if newRound {
		p.falls = p.least == 0 || b.last.minRTT < p.least-p.least/8
		p.least = b.last.minRTT
	}
	agree := newRound && b.last.meanRTT() < b.minRTT.rtt+queueMargin(b.minRTT.rtt)/2
	if (agree || e.now >= p.until) && !p.falls && b.minRTT.rtt > 0 {
		b.member.drains = 0
		b.goDown()
		b.enter(cruise)
		if p.probes {
			b.probe.at = b.now
		} else if b.probe.stood > 0 {
			b.probeSoon()
		}
	}
}

func (b *bbr) state() string { return phaseNames[b.phase] }

func (b *bbr) setPacketSize(bytes int) { b.packetSize = bytes }
