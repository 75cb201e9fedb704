package congestion

import "time"

// Room for others. A queue that stands while a flow cruises is made by somebody else too: alone, a
// flow that sees a queue cruises just below the rate of the path, and the queue drains. If nobody
// gives way then, the shares stay as they are, a newcomer keeps the little it has, and all lose
// packets at the full queue. So each flow lowers its rate to what is delivered and its window to
// what fits on the path without a queue, until the queue is gone. The next probes divide the room,
// and the smaller flow gains more of it.
//
// The kernel's BBR version 1 and CUBIC do not give way: they would take it all. If the queue
// outlives a few rounds, the flow takes its rate back and tries again later, each time after twice
// as many probes. If packets are lost besides in many rounds, not even losses make the others give
// way. The queue is then as long as it can be, and the flow keeps a share of it in place of a share
// of the empty path.

const (
	// yieldAfter is how many rounds a cruise lasts first: the earlier ones show the probe before
	// it.
	yieldAfter = 2
	// yieldRounds is how long others have to give way, too: they need some rounds to see the queue.
	yieldRounds = 5
	// maxFutile bounds the pause after yielding in vain to 32 probes, about a minute and a half.
	maxFutile = 5
	// steadyQueue is how much of the mean delay every packet of a round has, if a queue causes it.
	// Of jitter, the luckiest packets have less: without this bound, a flow alone on a path with
	// jitter would give way to nobody.
	steadyQueue = 0.87
	// emptied is what must be left of the delay for the flow to have given way with success.
	emptied = 0.5
	// kept is the least part of its share that a flow keeps when it gives way. Its window empties
	// the queue, and less is delivered meanwhile. A flow that followed this down had half of its
	// share until the next probe, also where nobody took the rest.
	kept = 0.85
	// regrowth is by how much the rate of a flow with siblings grows in each round without a queue,
	// after they gave way.
	regrowth = 1.01
	// aloneAfter is how many probes a flow waits, without a queue after them, until it takes itself
	// for alone.
	aloneAfter = 3
)

// yield is how a flow gives way to others.
type yield struct {
	active bool
	rounds int           // of this cruise in which it gave way
	from   time.Duration // mean delay at the first of them
	share  float64       // rate at the first of them
	futile int           // how often it was in vain lately
	pause  int           // probes until it gives way again
	rivals int           // probes until the flow takes itself for alone
}

// probed begins another cycle.
func (y *yield) probed() {
	y.active, y.rounds, y.from = false, 0, 0
	y.pause, y.rivals = max(0, y.pause-1), max(0, y.rivals-1)
}

// standing says whether a queue stood for the whole of the last round.
func (b *bbr) standing() bool {
	return b.queued() && float64(b.last.minRTT-b.minRTT.rtt) > steadyQueue*float64(b.last.meanRTT()-b.minRTT.rtt)
}

// giveWay looks at a complete round of "cruise". A flow whose last probe found more than it had is
// the smaller one, and keeps what it has.
func (b *bbr) giveWay(limitedNow bool) {
	y := &b.yield
	if b.phase != cruise || b.elapsed() < yieldAfter {
		return
	}
	if !b.empty() {
		y.rivals = aloneAfter
	}
	if y.pause > 0 || b.probe.rising || b.short() || limitedNow {
		return
	}
	delay := b.last.meanRTT() - b.minRTT.rtt
	if y.from > 0 && delay.Seconds() < emptied*y.from.Seconds() {
		y.futile, y.from = max(0, y.futile-1), 0
	}
	if y.active = b.standing(); !y.active {
		if y.rounds > 0 && y.futile == 0 && b.bandwidth.limit > 0 && b.company.part < 1 && !b.queued() {
			// They all gave way to a queue that was their own: it goes back to its share, and on.
			b.bandwidth.limit = max(b.bandwidth.limit, y.share)
			if b.empty() {
				b.bandwidth.limit *= regrowth
			}
		}
		return
	}
	now := b.bandwidth.now()
	if y.rounds == 0 {
		y.from, y.share = delay, max(b.last.rate(), reduction*now)
	}
	if y.rounds++; y.rounds > yieldRounds {
		y.futile = min(y.futile+1, maxFutile)
		y.active, y.pause = false, 1<<y.futile
		b.bandwidth.limit = 0
		return
	}
	if b.last.samples > 0 {
		b.bandwidth.limit = min(now, max(b.last.rate(), kept*y.share))
	}
}

// fills says whether a flow cruises at the full rate of the path. At less, it leaves room for
// newcomers. A flow takes the full rate if no queue stands now and none stood after its last probes:
// then it is alone. For a flow with siblings only the present queue counts, since earlier ones may
// have been theirs.
func (b *bbr) fills() bool {
	return b.empty() && (b.yield.rivals == 0 || b.company.part < 1)
}

// contested says that others keep the queue full and give way neither to it nor to losses, as the
// kernel's BBR does.
func (b *bbr) contested() bool {
	return b.queued() && b.yield.futile > 0 && b.company.lossy > unyielding
}
