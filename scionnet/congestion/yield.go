package congestion

import "time"

// Room for others. If a queue stands while a flow cruises, somebody else fills it, too: a flow that
// is alone and sees a queue cruises just below the rate of the path, and the queue drains. If
// nobody gave way, the shares would stay as they are: a new flow would keep its small share, and
// all would lose packets at the full queue. So each flow lowers its rate to the delivered rate, and
// its window to the volume that fits on the path without a queue, until the queue is empty. The
// next probes divide the free capacity, and smaller flows gain more of it.
//
// The kernel's BBR version 1 and CUBIC do not give way, and would take everything. If the queue is
// still there after a few rounds, the flow takes its rate back and tries again later, each time
// after twice as many probes. If many rounds lose packets as well, the others do not even respond
// to losses. The queue is then as long as it can be, and the flow keeps a share of the queue
// instead of a share of the empty path.

const (
	// yieldAfter is how many rounds a cruise lasts first: the earlier ones show the probe before
	// it.
	yieldAfter = 2
	// yieldRounds is how long others have to give way, too: they need some rounds to see the queue.
	yieldRounds = 5
	// maxFutile bounds the pause after yielding in vain to 32 probes, about a minute and a half.
	maxFutile = 5
	// If a queue causes the delay, every packet of a round waits for at least this part of the mean
	// delay. With jitter, some packets wait less. Without this bound, a flow that is alone on a
	// path with jitter would give way, though there is nobody else.
	steadyQueue = 0.87
	// emptied is what must be left of the delay for the flow to have given way with success.
	emptied = 0.5
	// kept is the least part of its share that a flow keeps when it gives way. While its small
	// window empties the queue, less is delivered. Without this bound, the flow followed the
	// delivered rate down, and had half of its share until the next probe, even if nobody took the
	// rest.
	kept = 0.85
	// regrowth is by how much the rate of a flow with siblings grows in each round without a queue,
	// after they gave way.
	regrowth = 1.01
	// After this number of probes without a queue, a flow assumes that it is alone.
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
	rivals int           // probes until the flow assumes that it is alone
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
		if y.rounds > 0 && b.bandwidth.limit > 0 && b.empty() && b.company.lossy <= unyielding {
			b.probeSoon()
		}
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
// newcomers. A flow takes the full rate if no queue stands now and none stood after its last
// probes: then it is alone. For a flow with siblings only the present queue counts, since earlier
// ones may have been theirs.
func (b *bbr) fills() bool {
	return b.empty() && (b.yield.rivals == 0 || b.company.part < 1)
}

// contested says that others keep the queue full and give way neither to it nor to losses, as the
// kernel's BBR does.
func (b *bbr) contested() bool {
	return b.queued() && b.yield.futile > 0 && b.company.lossy > unyielding
}
