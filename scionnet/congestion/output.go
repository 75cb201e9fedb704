package congestion

// What a BBR flow sends: the window bounds what is in flight, the pacing rate spreads it over time.

const (
	startupGain = 2.77 // 4 ln 2: doubles the delivered rate in each round trip
	drainGain   = 0.5
	windowGain  = 2.0  // covers delayed and bunched acknowledgements
	downGain    = 0.75 // empties in one round trip what a probe has put into the queue
	upGain      = 1.25 // finds a quarter more in one round trip
	vacatedGain = 2.0  // finds what a sibling has left
	crowdedGain = 1.7  // grows beside a larger flow that keeps the queue full
	cruiseGain  = 0.99 // lets a queue shrink that estimates slightly too high have made

	// After losses, a flow keeps at most this part of the volume that the path took without losses,
	// so that others find room. Rivals that respond to losses, too, leave this room free. Beside
	// other rivals it would be lost to them.
	headroom = 0.8

	// If others keep a queue full and do not give way, the rate needs a larger window than
	// windowGain allows. Then this is the limit: in a longer queue, the kernel's BBR is limited by
	// its own window.
	contestedGain = 2.4

	// slack is over the product of rate and round trip: pacing sends in bursts, and receivers wait
	// with acknowledgements.
	slack = 1.06

	// On a short path, hosts take longer than the path. A sender that waits for timers there
	// reaches a fraction of what the processors can do, so shortGain lets the window alone set the
	// pace.
	shortGain = 2.0
	// shortTime is the round trip that a short path counts as. The window covers twice that, four
	// milliseconds. With half of it, most batches of packets ended because the window was full, and
	// a gigabyte through two routers took a tenth more processor time. With more of it, queues
	// overflow: those of switches, and those of receivers that pause.
	shortTime = 2 * hostTime

	sparePackets = 3 // so that a window of few packets is not a stop-and-wait
)

func (b *bbr) window() int {
	if b.bandwidth.max() == 0 {
		return int(b.start.cwnd)
	}
	rate := b.bandwidth.now() * b.company.scale
	product, room := b.product(rate), b.room(rate)
	spare := sparePackets * float64(b.packetSize) * b.company.part
	w := windowGain*room + spare
	bunched := 0.0
	if b.start.filled && !b.queued() && !b.short() { // else growth, the queue or the room covers it
		bunched = b.acks.bytes()
		if b.bandwidth.limit > 0 { // the path has no room for more
			bunched = min(bunched, product)
		}
	}
	if b.contested() {
		w = max(w, min(slack*rate*b.last.meanRTT().Seconds(), contestedGain*product))
	}
	w += bunched
	switch b.phase {
	case startup:
		// With jitter, most packets may take more than windowGain times the least round trip, and then
		// the window would keep the rate from growing. Siblings that start together delay each other's
		// packets in a similar way, so for them this counts only once the rate has stopped growing.
		if b.shaken() && (b.company.part == 1 || b.start.without > 0) {
			w = max(w, rate*(b.minRTT.rtt+b.last.meanRTT()).Seconds()+spare)
		}
		w = max(min(w, b.start.cwnd), b.initial(), windowGain*b.room(b.start.resume.floor(b.now)))
	case probeRTT:
		return int(max(probeRTTGain*room, minWindow*float64(b.packetSize)))
	case up, refill:
		if b.phase == up {
			probe := b.bandwidth.now() * (b.probe.meanRTT + upQueue).Seconds()
			if b.probe.vacated > 0 {
				w = max(w, min(vacatedGain*w, b.product(b.probe.vacated)*upGain+bunched))
			} else if b.contested() || b.probe.crowded { // the queue of others holds a small flow back, not its rate
				w = crowdedGain*probe + bunched
			} else {
				w = min(w, probe+bunched+spare)
			}
		}
		if b.probe.ceiling > 0 {
			w = min(w, max(b.probe.ceiling, product))
		}
	default:
		if b.probe.ceiling > 0 && !(b.queued() && b.company.lossy > unyielding) {
			w = min(w, max(b.probe.ceiling*headroom, product*slack+bunched))
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
		return startupGain * b.start.cwnd / rtt.Seconds()
	}
	gain := 1.0
	switch b.phase {
	case startup:
		// The few small packets of a handshake say nothing of the path's rate.
		least := b.initial() / max(b.minRTT.rtt, hostTime).Seconds()
		return b.start.resume.bound(b.now, max(startupGain*rate, least))
	case drain:
		gain = drainGain
	case down:
		gain = downGain
	case cruise:
		if !b.fills() {
			gain = cruiseGain
		}
	case up:
		gain = max(1+(upGain-1)*b.company.probe, min(vacatedGain, b.probe.vacated/rate))
		if b.probe.crowded {
			gain = max(gain, crowdedGain)
		}
	}
	if b.idle {
		gain = min(gain, 1)
	}
	if b.short() && b.phase != drain && b.phase != probeRTT {
		gain = max(gain, shortGain)
	}
	if b.trial.compensate && !b.queued() {
		gain /= 1 - b.ambient.rate // what the path loses by itself is sent on top
	}
	return gain * rate
}
