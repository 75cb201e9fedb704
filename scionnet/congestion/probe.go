package congestion

import "time"

// A probe looks for more bandwidth: a round trip of "refill" at the present rate, so that a full
// path is not taken for an empty one, then "up" with a quarter more until the path is full.

const (
	upGrowth = 0.1 // a probe that finds more than this part goes on
	upRounds = 2   // complete rounds show the effect of a probe: the first acknowledges what was sent before it

	// pressed is the part of its packets that a flow may lose beside a rival that fills a full
	// queue regardless of losses, as the kernel's BBR does. If the flow slowed down for such
	// losses, the rival would take everything.
	pressed = 0.05
	// For crowdedTime after its start, a flow pushes into a queue that others keep full, to get a
	// share beside the kernel's controllers. If flows of many hosts went on pushing, they would fill
	// any queue.
	crowdedTime = 5 * time.Second

	// roomRounds is how long a queue has to stand before its end means that somebody has left. The
	// queue of CUBIC comes and goes.
	roomRounds = 8
	// A flow that has emptied a queue of others waits for vacantTime and roomRounds before it looks
	// for room. By then, others have taken the room if they want it.
	vacantTime = 400 * time.Millisecond

	// upQueue is the longest queue that a probe makes. It leaves room to see growth on all but
	// intercontinental paths.
	upQueue = 20 * time.Millisecond

	// A flow probes every two to three seconds, at a random time, so that flows do not probe
	// together. More often costs queue and losses. Less often is slow to see that a rival has left.
	// On a path of a few milliseconds, probes are about probeRounds round trips apart: their queue
	// is gone sooner, and a probe that busy hosts spoil counts until the next one.
	probeEvery  = 2 * time.Second
	probeRounds = 200
)

// probe is the present or the last one.
type probe struct {
	at      time.Duration // when the next one is due
	cruised float64       // bandwidth that the path gave before
	ceiling float64       // most that the path took in flight without losses; 0: no loss yet
	rising  bool          // the last one found more
	crowded bool          // soon after the start, a queue of others stood, and the last one found more
	failed  bool          // it ended in losses
	stood   int           // rounds for which a queue has stood by now
	vacated float64       // bandwidth with the part of a sibling that has gone; 0: none has
	noticed time.Duration // when that was seen

	// Of its "up": the mean round trip and the bandwidth before it.
	meanRTT time.Duration
	rate    float64
	step    float64 // what the ceiling is raised by in this round
	limited bool    // the ceiling was used up in this round
}

// stepCruise begins a probe, with all flows behind the same queue.
func (b *bbr) stepCruise(e event) {
	if e.now < b.probe.at && b.member.begun <= b.since || e.limitedNow {
		return
	}
	for m := range b.member.together {
		m.begun = e.now
	}
	b.probe.cruised, b.bandwidth.limit, b.probe.failed = b.credible(), 0, false
	b.probe.crowded = b.standing() && b.probe.rising && b.now < b.start.ended+crowdedTime
	b.enter(refill)
}

// credible is the bandwidth that a flow keeps after a probe that ends in losses. In a full queue it
// is the part of the path that others leave, not the bandwidth that was once found. With the
// latter, a flow lost half of its packets beside datagrams, which do not respond to losses.
func (b *bbr) credible() float64 {
	now := b.bandwidth.now()
	if !b.queued() || b.contested() && b.drops.part() < pressed {
		return now
	}
	return now * (1 - b.drops.part())
}

// noticeRoom starts a probe at once when a queue is empty that stood for many rounds, unless this
// flow itself sent less: then somebody else has stopped.
func (b *bbr) noticeRoom() {
	switch {
	case b.phase == probeRTT || b.yield.active:
	case b.queued():
		b.probe.stood++
	default:
		gaveWay := b.yield.rounds > 0 && b.yield.rounds <= yieldRounds
		if b.phase == cruise && !gaveWay && b.probe.stood > roomRounds {
			b.probe.at = b.now
		}
		b.probe.stood = 0
	}
}

// probeSoon brings the next probe forward, since this flow has emptied a queue. Flows with siblings
// go back to their shares instead (giveWay): their probes would make the next queue.
func (b *bbr) probeSoon() {
	if b.company.part == 1 {
		b.probe.at = min(b.probe.at, b.now+max(vacantTime, roomRounds*b.minRTT.rtt))
	}
}

// stepRefill goes up once a whole round has shown the path as it was.
func (b *bbr) stepRefill(newRound bool) {
	if !newRound || b.elapsed() < 1 {
		return
	}
	b.enter(up)
	p := &b.probe
	p.meanRTT, p.rate = b.last.meanRTT(), b.bandwidth.max()
	p.step, p.limited = float64(b.packetSize)*b.company.part, false
	b.bandwidth.advance()
	b.total.advance()
}

// stepUp looks for more bandwidth until the path is full.
func (b *bbr) stepUp(e event, newRound bool) {
	if b.probe.ceiling > 0 && float64(e.prior+2*b.packetSize) >= b.probe.ceiling {
		b.probe.limited = true
	}
	// In a queue that others keep full, a small flow goes on as long as it grows: the queue is not
	// its own.
	longest := b.probe.meanRTT + queueMargin(b.minRTT.rtt)
	full := !b.probe.crowded && b.rounds.samples >= 8 && b.rounds.minRTT > longest
	if full || b.member.ended > b.since {
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
	grows := b.bandwidth.max() > b.probe.rate*(1+min(upGrowth, upQueue.Seconds()/b.probe.meanRTT.Seconds()/2))
	if grows {
		b.probe.rate, b.began = b.bandwidth.max(), b.rounds.count
	}
	if b.probe.limited {
		b.probe.ceiling += b.probe.step
		b.probe.step = min(2*b.probe.step, b.probe.ceiling)
		b.probe.limited = false
	} else if !grows && b.elapsed() >= upRounds {
		b.goDown()
	}
}

func (b *bbr) goDown() {
	wait := min(probeEvery, probeRounds*max(b.minRTT.rtt, hostTime))
	wait += time.Duration(b.random.Float64() * float64(wait/2))
	b.probe.rising = b.bandwidth.max() > (1+upGrowth)*b.probe.cruised
	if b.probe.rising {
		wait /= 4 // there is probably more: a newcomer next to a large flow has a long way to go
	}
	b.probe.at = b.now + wait
	if b.probe.noticed > b.since { // too late for this probe
		b.probe.at = b.now
	} else {
		b.probe.vacated = 0
	}
	b.yield.probed()
	b.startTrial()
	b.enter(down)
}

// endByLosses ends a probe whose losses, or those of its siblings' probes, mean that the path is
// full.
func (b *bbr) endByLosses(e event) {
	b.publish(e)
	lost, total := b.member.probeLosses()
	inflight := e.prior
	switch {
	case e.lost > 0 && (b.overflown() && !b.probe.crowded || b.ambient.exceeded(lost, total, b.packetSize, sigmas)):
		for m := range b.member.together {
			if m == b.member || !e.limitedNow { // what a flow loses when it stops is no probe
				m.failed = e.now
			}
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
	if b.probe.ceiling > 0 || !b.short() { // narrow sets the first one of a short path
		b.probe.ceiling = max(float64(inflight), b.product(b.bandwidth.now()))
	}
	b.bandwidth.clip(max(b.probe.cruised, b.rounds.rate(), b.last.rate()))
	b.probe.failed = true
	b.goDown()
}
