package congestion

import (
	"math/rand/v2"
	"time"
)

// BBR, after draft-ietf-ccwg-bbr (version 3): send at the rate at which the path delivers, keep about what
// fits on the path in flight, and look for more now and then.
//
//	startup ──► drain ──► down ──► cruise ──► refill ──► up
//	                       ▲                              │
//	                       └──────────────────────────────┘
//	any state ──► probe rtt ──► cruise, once no round trip has been seen without a queue for 10 s
//
// It differs from the draft where the draft fails on lossy or short-queued paths:
//
//   - Losses count above the path's ambient loss only (loss.go).
//   - The rate of a round trip is the mean of its samples, not the greatest (model.go): jitter does not
//     raise it.
//   - A probe that ends in losses shows the rate of the path: what was believed above it is forgotten. So
//     the burst that a policer lets pass is not remembered as bandwidth.
//   - A probe ends when the queue that it makes is as long as queueMargin allows, not after three
//     round trips without growth.
//   - A queue-free round trip is seen in every "down", so that "probe rtt" is rare.
//   - It gives way when a queue stands that it has not made alone (yield.go), in place of the draft's lower
//     bounds after any loss.
type bbr struct {
	packetSize int
	random     *rand.Rand
	member     *member // of a group; alone in its own if it is in none

	phase      phase
	since      time.Duration // when it began
	began      int           // number of the round then
	bandwidth  bandwidth
	total      bandwidth // of the flows behind the same queue
	company    company
	minRTT     propagation
	rounds     rounds
	last       rounds // the last complete round
	acks       aggregation
	yield      yield
	ambient    ambient
	trialFrom  uint64        // bytes delivered when the last trial began
	trialAt    time.Duration // when its first packet was acknowledged; 0: not yet
	compensate bool          // it is over: what the path loses may be sent on top

	// Startup.
	full      float64  // bandwidth that growth is compared with
	fullCount int      // rounds without growth
	filled    bool     // the bandwidth of the path is known
	overshot  overshot // what was delivered once losses had ended startup
	cwnd      float64  // grows with what is acknowledged until then
	resume    resume

	// Probes.
	probeAt    time.Duration // when the next one is due
	cruised    float64       // bandwidth that the path was used with before this probe
	upRTT      time.Duration // round trip before this probe, the least and the mean
	upMeanRTT  time.Duration
	upRate     float64       // bandwidth before it
	lossy      float64       // part of the recent rounds that lost packets
	ceiling    float64       // most that the path took in flight without losses; 0: no loss yet
	rising     bool          // the last probe found more
	crowded    bool          // a queue of others stood when this one began, and the last one found more
	failed     bool          // the last probe ended in losses
	upStep     float64       // what the ceiling is raised by in this round
	upLimited  bool          // the ceiling was used up in this round
	idle       bool          // restarted from idle: no probe on top
	probeRTTAt time.Duration // when "probe rtt" may end; 0: still draining
	now        time.Duration
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
	startupGain = 2.77 // 4 ln 2: doubles the delivered rate in each round trip
	drainGain   = 0.5
	windowGain  = 2.0  // covers delayed and bunched acknowledgements
	downGain    = 0.75 // empties in one round trip what a probe has put into the queue
	upGain      = 1.25 // finds a quarter more in one round trip
	cruiseGain  = 0.99 // lets a queue shrink that estimates slightly too high have made

	fullGrowth = 1.25 // less in a round trip is no growth
	fullRounds = 3    // rounds without growth end startup: one may be a hiccup of the receiver

	// startupLoss of what is in flight ends startup at once: no path worth filling loses so much by itself.
	startupLoss = 0.2
	fullLoss    = 0.1 // if the rate has not grown either
	startupLost = 10  // packets, at least

	upGrowth = 0.1 // a probe that finds more than this part goes on
	upRounds = 2   // complete rounds show the effect of a probe: the first acknowledges what was sent before it
	// headroom is the part of what the path took without losses that a flow then takes, so that others find room.
	// A rival that yields to losses too causes few. Where a queue stands and more rounds lose packets than unyielding, of the
	// last lossyRounds or so, nobody yields (the kernel's BBR does not, nor does chance), and headroom would only be given away.
	headroom    = 0.8
	unyielding  = 0.18
	lossyRounds = 32

	// Where others keep a queue full and nobody gives way, a window of windowGain is less than the rate needs, and no probe
	// can find more. These bound it there: in a longer queue, the kernel's BBR is held by its own window.
	contestedGain, contestedUpGain = 2.4, 2.8

	slack = 1.06 // over the product of rate and round trip: pacing sends in bursts, receivers wait with acknowledgements
	// On a short path, hosts take longer than the path. A sender that waits for timers there reaches a fraction of what the
	// processors can do, so shortGain lets the window alone set the pace.
	shortGain = 2.0
	// shortTime is the round trip that a short path counts as. The window covers twice that, four milliseconds. With half of
	// it, most batches of packets ended because the window was full, and a gigabyte through two routers took a tenth more
	// processor time. With more of it, queues overflow: those of switches, and those of receivers that pause.
	shortTime = 2 * hostTime
	// If more than this part of the rounds loses packets, the path's queue is shorter than the window.
	shortLossy = 0.25
	// A window of shortLeast products does not overflow a queue. What is lost then, the path itself loses.
	shortLeast = 2

	sparePackets = 3 // so that a window of few packets is not a stop-and-wait

	reduction = 0.7 // least part of its rate that a congested round leaves a flow

	probeRTTTime = 200 * time.Millisecond
	probeRTTGain = 0.5

	// A flow probes every two to three seconds, at a random time, so that flows do not probe together. More often costs queue
	// and losses. Less often is slow to see that a rival has left. On a path of a few milliseconds, probes are about
	// probeRounds round trips apart: their queue is gone sooner, and a probe that busy hosts spoil counts until the next one.
	probeEvery  = 2 * time.Second
	probeRounds = 200
)

// upQueue is the longest queue that a probe makes. It leaves room to see growth on all but intercontinental paths.
const upQueue = 20 * time.Millisecond

// queueMargin is how much a probe may add to the round trip: a part of it, and not below what jitter
// and timers make, nor above what people notice.
func queueMargin(rtt time.Duration) time.Duration {
	return min(max(rtt/8, 4*time.Millisecond), 15*time.Millisecond)
}

func newBBR(packetSize int, seed uint64) *bbr {
	return &bbr{
		packetSize: packetSize, cwnd: float64(initialWindow * packetSize),
		random: rand.New(rand.NewPCG(seed, 0)), company: company{part: 1, probe: 1, scale: 1}, member: &member{},
	}
}

func (b *bbr) enter(p phase) { b.phase, b.since, b.began = p, b.now, b.rounds.count }

// elapsed is the number of complete rounds of this phase.
func (b *bbr) elapsed() int { return b.rounds.count - b.began - 1 }

// queued says whether a queue stood for the whole of the last round.
func (b *bbr) queued() bool { return b.last.minRTT > b.minRTT.rtt+queueMargin(b.minRTT.rtt) }

// overflown says whether a loss now is that of a full queue which others fill as well, and from which they draw back.
func (b *bbr) overflown() bool { return b.queued() && b.company.lossy <= unyielding }

// short says that both hosts make more of a round trip than the path.
func (b *bbr) short() bool { return b.minRTT.rtt > 0 && b.minRTT.rtt < hostTime }

// product is the volume that fits on the path without a queue.
func (b *bbr) product(rate float64) float64 { return rate * b.minRTT.rtt.Seconds() }

// room is the product or, on a short path, the volume that the hosts need. The ceiling bounds it if the queue is shorter.
func (b *bbr) room(rate float64) float64 {
	if b.short() {
		return rate * shortTime.Seconds()
	}
	return b.product(rate)
}

func (b *bbr) onSent(now time.Duration, inflight int, appLimited bool) {
	if inflight == 0 && appLimited && now > b.now+b.minRTT.rtt {
		// Restart from idle: the queue is empty, and the rate of before is the best guess. What was on
		// its way when the flow fell silent says nothing of ambient loss.
		b.idle = true
		b.minRTT.at = max(b.minRTT.at, now-minRTTWindow+2*b.minRTT.rtt) // silence is no queue
		b.acks.since, b.acks.acked = now, 0
		if b.phase == up || b.phase == refill {
			b.now = now
			b.goDown()
		}
	}
}

func (b *bbr) onAck(e event) {
	b.now = e.now
	last, newRound := b.rounds.add(e)
	if newRound {
		b.last = last
		b.idle = false
		b.lossy -= b.lossy / lossyRounds
		if last.lost > 0 {
			b.lossy += 1.0 / lossyRounds
		}
		b.compare()
		b.giveWay(e.limitedNow)
	}
	b.measure(e, newRound)
	expired := e.rtt > 0 && b.minRTT.add(e.now, e.rtt)
	if b.filled && b.phase != probeRTT && (expired || b.member.drains > b.minRTT.at) {
		if expired {
			b.drainAll()
		}
		b.enter(probeRTT)
		b.probeRTTAt = 0
	}
	b.respond(e)
	b.step(e, newRound)
	b.publish(e)
	if !b.filled {
		b.cwnd = min(max(b.cwnd, b.room(b.resume.floor(b.now)))+float64(e.acked), maxWindow)
	}
}

// measure updates the bandwidth and the ambient loss.
func (b *bbr) measure(e event, newRound bool) {
	rate, appLimited := e.rate, e.appLimited
	if b.short() {
		if rate = 0; newRound {
			rate, appLimited = b.last.rate(), b.last.samples == 0
		}
	}
	if !b.filled {
		if rate > 0 && (!appLimited || rate > b.bandwidth.max()) {
			b.bandwidth.add(rate)
		}
	} else if newRound && b.last.samples > 0 && b.probed() {
		b.bandwidth.add(b.last.rate())
	} else if appLimited && rate > b.bandwidth.max() {
		b.bandwidth.add(rate)
	}
	b.acks.add(e.now, e.acked, b.bandwidth.now(), newRound)
}

// probed says whether the round that ended shows the effect of a probe. Other rounds deliver what was sent, and the
// greatest of many of them would be chance.
func (b *bbr) probed() bool {
	return b.phase == refill || b.phase == up || b.phase == down && b.elapsed() <= 1 && !b.failed
}

// respond lowers the bounds when losses mean congestion: at once in a probe, else after a trial.
func (b *bbr) respond(e event) {
	switch b.phase {
	case refill, up:
		b.publish(e)
		lost, total := b.member.probeLosses()
		inflight := e.prior
		switch {
		case e.lost > 0 && (b.overflown() && !b.crowded || b.ambient.exceeded(lost, total, b.packetSize, sigmas)):
			for m := range b.member.together {
				m.failed = e.now
			}
			if e.lostInflight > 0 {
				inflight = e.lostInflight
			}
			if b.short() { // many packets are lost before the first loss is noticed: the path does not take them
				inflight = max(inflight-b.rounds.lost, int(reduction*float64(inflight)))
			}
		case b.member.failed <= b.since:
			return
		}
		if b.ceiling > 0 || !b.short() { // narrow sets the first one of a short path
			b.ceiling = max(float64(inflight), b.product(b.bandwidth.now()))
		}
		b.bandwidth.clip(max(b.cruised, b.rounds.rate(), b.last.rate()))
		b.failed = true
		b.goDown()
	case down, cruise:
		// Packets that were sent before the trial began do not count. Losses that a timer finds come without an
		// acknowledgement, which would tell when they were sent. On a short path those are most losses, so they count.
		if e.sentDelivered < b.trialFrom && !(b.short() && e.acked == 0) {
			return
		}
		if b.standing() { // what a full queue drops says nothing of the path itself; giveWay responds
			b.startTrial()
			return
		}
		if b.trialAt == 0 {
			b.trialAt = e.now
			return
		}
		delivered := float64(b.ambient.delivered+e.acked) / max(e.now-b.trialAt, time.Millisecond).Seconds()
		switch b.ambient.add(e.acked, e.lost, b.packetSize, e.now-b.trialAt, b.compensate && b.ambient.rate > 0) {
		case unfinished:
			return
		case congestion:
			if b.narrow() {
				break
			}
			now := b.bandwidth.now()
			if e.limitedNow { // less was delivered because less was sent
				delivered = max(delivered, reduction*now)
			}
			b.bandwidth.limit = min(delivered, now)
			b.startTrial()
		case byItself:
			b.bandwidth.limit, b.compensate = 0, true
		case quiet:
			b.compensate = true
		}
		b.trialAt = e.now
	}
}

// narrow responds to losses on a short path, and returns whether it did. The window may be longer than the queue, so the rate
// stays as it is. If the receiver pauses, a few rounds lose packets. If the window is too long, most rounds do.
func (b *bbr) narrow() bool {
	w := float64(b.window())
	if !b.short() || w <= shortLeast*b.product(b.bandwidth.now())+sparePackets*float64(b.packetSize) {
		return false
	}
	if b.lossy > shortLossy {
		b.ceiling = reduction / headroom * w
	}
	b.ambient.before = 0 // fewer losses in the next trial say nothing of the path itself
	b.startTrial()
	return true
}

// startTrial begins to look for losses at the present rate.
func (b *bbr) startTrial() {
	b.trialFrom, b.trialAt, b.compensate = b.rounds.total, 0, false
	b.ambient.restart()
}

// step moves from phase to phase.
func (b *bbr) step(e event, newRound bool) {
	if rate := b.overshot.add(e); rate > 0 && !b.short() {
		b.bandwidth.clip(rate)
		b.bandwidth.add(rate)
	}
	switch b.phase {
	case startup:
		b.resume.check(e, b.packetSize)
		if b.resume.reached(b.bandwidth.max()) {
			b.filled, b.cruised = true, b.bandwidth.max()
			b.enter(refill) // and see whether it carries more
		} else if newRound {
			b.checkFull(e)
		} else if b.flooded(b.rounds.lost, e.prior, startupLoss) {
			b.fill(e, true)
		}
	case drain:
		if b.drained(e) {
			b.goDown()
			if b.company.part < 1 { // what it took for the least round trip has the others' queue in it
				b.drainAll()
			}
		}
	case down:
		if b.drained(e) {
			b.enter(cruise)
		}
	case cruise:
		if (e.now >= b.probeAt || b.member.begun > b.since) && !e.limitedNow {
			for m := range b.member.together {
				m.begun = e.now
			}
			b.cruised, b.bandwidth.limit, b.failed = b.bandwidth.now(), 0, false
			b.crowded = b.standing() && b.rising
			b.enter(refill)
		}
	case refill:
		if newRound && b.elapsed() >= 1 {
			b.enter(up)
			b.upRTT, b.upMeanRTT = b.last.minRTT, b.last.meanRTT()
			b.upRate, b.upStep, b.upLimited = b.bandwidth.max(), float64(b.packetSize)*b.company.part, false
			b.bandwidth.advance()
			b.total.advance()
		}
	case up:
		b.probe(e, newRound)
	case probeRTT:
		b.stepProbeRTT(e)
	}
}

// flooded says whether so much is lost that startup has gone too far. Of a few packets any part may be lost by chance.
func (b *bbr) flooded(lost, total int, part float64) bool {
	return lost >= startupLost*b.packetSize && float64(lost) > part*float64(total)
}

// checkFull ends startup when the bandwidth no longer grows. One round is enough if much is lost.
func (b *bbr) checkFull(e event) {
	if b.last.samples == 0 { // limited by the application
		return
	}
	if b.bandwidth.max() >= b.full*fullGrowth {
		b.full, b.fullCount = b.bandwidth.max(), 0
		return
	}
	b.fullCount++
	lossy := b.flooded(b.last.lost, b.last.delivered+b.last.lost, fullLoss)
	if b.fullCount >= fullRounds || lossy {
		b.fill(e, lossy)
	}
}

// fill ends startup. If packets were lost, the bandwidth is what is delivered of those in flight now, and not what a
// policer let pass before.
func (b *bbr) fill(e event, lossy bool) {
	if lossy {
		b.overshot = overshot{until: e.delivered}
		if e.rate > 0 && !b.short() {
			b.bandwidth.clip(max(e.rate, b.rounds.rate()))
		}
	}
	b.filled = true
	b.enter(drain)
}

func (b *bbr) goDown() {
	wait := min(probeEvery, probeRounds*max(b.minRTT.rtt, hostTime))
	wait += time.Duration(b.random.Float64() * float64(wait/2))
	b.rising = b.bandwidth.max() > (1+upGrowth)*b.cruised
	if b.rising {
		wait /= 4 // there is probably more: a newcomer next to a large flow has a long way to go
	}
	b.probeAt = b.now + wait
	b.yield.probed()
	b.startTrial()
	b.enter(down)
}

func (b *bbr) drained(e event) bool {
	return float64(e.inflight) <= b.room(b.bandwidth.now()) || b.elapsed() >= 3
}

// probe looks for more bandwidth until the path is full.
func (b *bbr) probe(e event, newRound bool) {
	if b.ceiling > 0 && float64(e.prior+2*b.packetSize) >= b.ceiling {
		b.upLimited = true
	}
	// In a queue that others keep full, a small flow goes on as long as it grows: the queue is not its own.
	if !b.crowded && b.rounds.samples >= 8 && b.rounds.minRTT > b.upRTT+queueMargin(b.minRTT.rtt)+b.upMeanRTT-b.upRTT || b.member.ended > b.since {
		if b.member.ended < b.since {
			for m := range b.member.together {
				m.ended = e.now
			}
		}
		b.goDown()
		return
	}
	if !newRound {
		return
	}
	grows := b.bandwidth.max() > b.upRate*(1+min(upGrowth, upQueue.Seconds()/b.upMeanRTT.Seconds()/2))
	if grows {
		b.upRate, b.began = b.bandwidth.max(), b.rounds.count
	}
	if b.upLimited {
		b.ceiling += b.upStep
		b.upStep = min(2*b.upStep, b.ceiling)
		b.upLimited = false
	} else if !grows && b.elapsed() >= upRounds {
		b.goDown()
	}
}

// drainAll has all flows behind the same queue look for the least round trip.
func (b *bbr) drainAll() {
	for m := range b.member.together {
		m.drains = b.now
	}
}

func (b *bbr) stepProbeRTT(e event) {
	if b.probeRTTAt == 0 {
		if e.inflight <= b.window() {
			b.probeRTTAt = e.now + max(probeRTTTime, b.last.minRTT)
			b.minRTT = propagation{} // what is measured from now on
		}
		return
	}
	if e.now >= b.probeRTTAt && b.minRTT.rtt > 0 {
		b.minRTT.at = e.now
		b.goDown()
		b.enter(cruise)
	}
}

func (b *bbr) window() int {
	if b.bandwidth.max() == 0 {
		return int(b.cwnd)
	}
	rate := b.bandwidth.now() * b.company.scale
	product, room := b.product(rate), b.room(rate)
	w := windowGain*room + sparePackets*float64(b.packetSize)*b.company.part
	bunched := 0.0
	if b.filled && !b.queued() && !b.short() { // else growth, the queue or the room covers it
		bunched = b.acks.bytes()
		if b.bandwidth.limit > 0 { // the path has no room for more
			bunched = min(bunched, product)
		}
	}
	if b.contested() {
		w = max(w, min(slack*b.bandwidth.now()*b.company.scale*b.last.meanRTT().Seconds(), contestedGain*product))
	}
	w += bunched
	switch b.phase {
	case startup:
		w = max(min(w, b.cwnd), initial(b.packetSize, b.minRTT.rtt), windowGain*b.room(b.resume.floor(b.now)))
	case probeRTT:
		return int(max(probeRTTGain*room, minWindow*float64(b.packetSize)))
	case up, refill:
		if b.phase == up {
			probe := b.bandwidth.now() * (b.upMeanRTT + upQueue).Seconds()
			if b.contested() || b.crowded { // the queue of others holds a small flow back, not its rate
				w = min(probe, contestedUpGain*product) + bunched
			} else {
				w = min(w, probe+bunched+sparePackets*float64(b.packetSize)*b.company.part)
			}
		}
		if b.ceiling > 0 {
			w = min(w, max(b.ceiling, product))
		}
	default:
		if b.ceiling > 0 && !(b.queued() && b.company.lossy > unyielding) {
			w = min(w, max(b.ceiling*headroom, product*slack+bunched))
		}
		if b.yield.active && b.phase == cruise {
			w = min(w, product*slack+bunched)
		}
	}
	return int(w)
}

func (b *bbr) pacingRate() float64 {
	rate := b.bandwidth.now() * b.company.scale
	if rate == 0 {
		rtt := b.minRTT.rtt
		if rtt == 0 {
			rtt = firstRTT
		}
		return startupGain * b.cwnd / rtt.Seconds()
	}
	gain := 1.0
	switch b.phase {
	case startup:
		// The few small packets of a handshake say nothing of the path's rate.
		least := initial(b.packetSize, b.minRTT.rtt) / max(b.minRTT.rtt, hostTime).Seconds()
		return b.resume.bound(b.now, max(startupGain*rate, least))
	case drain:
		gain = drainGain
	case down:
		gain = downGain
	case cruise:
		gain = cruiseGain
	case up:
		gain = 1 + (upGain-1)*b.company.probe
	}
	if b.idle {
		gain = min(gain, 1)
	}
	if b.short() && b.phase != drain && b.phase != probeRTT {
		gain = max(gain, shortGain)
	}
	if b.compensate && !b.queued() {
		gain /= 1 - b.ambient.rate // what the path loses by itself is sent on top
	}
	return gain * rate
}

func (b *bbr) state() string { return phaseNames[b.phase] }

func (b *bbr) setPacketSize(bytes int) { b.packetSize = bytes }
