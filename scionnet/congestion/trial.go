package congestion

import "time"

// A trial looks for losses at the present rate while a flow goes down or cruises. What they mean is
// decided in loss.go.

const (
	// reduction is the part of its rate or window that a flow keeps after losses where the delivered
	// rate does not tell.
	reduction = 0.7

	// If more than this part of the rounds loses packets, the queue of a short path is shorter than
	// the window.
	shortLossy = 0.25
	// A window of shortLeast products does not overflow a queue. What is lost then, the path itself
	// loses.
	shortLeast = 2
)

type trial struct {
	from       uint64        // bytes delivered when it began
	at         time.Duration // when its first packet was acknowledged; 0: not yet
	compensate bool          // it is over: what the path loses may be sent on top
}

func (b *bbr) startTrial() {
	b.trial = trial{from: b.rounds.total}
	b.ambient.restart()
}

// tryLosses goes on with a trial, and lowers the rate if its losses mean congestion.
func (b *bbr) tryLosses(e event) {
	t := &b.trial
	// Packets that were sent before the trial began do not count. Losses that a timer finds come
	// without an acknowledgement, which would tell when they were sent. On a short path those are
	// most losses, so they count.
	if e.sentDelivered < t.from && !(b.short() && e.acked == 0) {
		return
	}
	if b.standing() { // what a full queue drops says nothing of the path itself; giveWay responds
		b.startTrial()
		return
	}
	if t.at == 0 {
		t.at = e.now
		return
	}
	lasted := e.now - t.at
	delivered := float64(b.ambient.delivered+e.acked) / max(lasted, time.Millisecond).Seconds()
	switch b.ambient.add(e.acked, e.lost, b.packetSize, lasted, t.compensate && b.ambient.rate > 0) {
	case unfinished:
		return
	case congestion:
		if b.narrow() {
			return
		}
		now := b.bandwidth.now()
		if e.limitedNow { // less was delivered because less was sent
			delivered = max(delivered, reduction*now)
		}
		b.bandwidth.limit = min(delivered, now)
		b.startTrial()
		return
	case byItself:
		b.bandwidth.limit, t.compensate = 0, true
	case quiet:
		t.compensate = true
	}
	t.at = e.now
}

// narrow responds to losses on a short path, and returns whether it did. The window may be longer
// than the queue, so the rate stays as it is. If the receiver pauses, a few rounds lose packets. If
// the window is too long, most rounds do.
func (b *bbr) narrow() bool {
	w := float64(b.window())
	if !b.short() || w <= shortLeast*b.product(b.bandwidth.now())+sparePackets*float64(b.packetSize) {
		return false
	}
	if b.lossy > shortLossy {
		b.probe.ceiling = reduction / headroom * w
	}
	b.ambient.before = 0 // fewer losses in the next trial say nothing of the path itself
	b.startTrial()
	return true
}
