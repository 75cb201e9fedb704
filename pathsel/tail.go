package pathsel

import (
	"math"
	"time"
)

const (
	// blockSize is the number of bytes in one request.
	blockSize = 16 << 10
	// tailBegins is the time left from which outstanding requests are compared with it. Earlier,
	// and slow paths would be parked while they are still useful.
	tailBegins = 5 * time.Second
	// unstolen is how many of a slow path's requests stay with it at the end. An idle connection
	// takes half of another's queue, again and again, but not the last requests, which are already
	// in flight.
	unstolen = 4
	// tailWorth is the smallest delay worth avoiding: cancelling requests costs a round trip and
	// some duplicates.
	tailWorth = time.Second
	// endgame is the time left from which every path that can still deliver is used. Longer, and
	// shared links are crowded for longer; shorter, and a returned path has no time to start.
	endgame = 3 * time.Second
	// noProbes is the time left below which a probe could not pay off.
	noProbes = 20 * time.Second
)

// timeLeft estimates the rest of the download from the current rate of all peers. It is very long
// if unknown.
func (a *adaptation) timeLeft() time.Duration {
	const long = time.Duration(math.MaxInt64)
	var sum float64
	for i := range a.peers {
		sum += a.carried(&a.peers[i])
	}
	if a.v.Remaining == 0 || sum == 0 {
		return long
	}
	if s := float64(a.v.Remaining) / sum; s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	return long
}

// BlockTime is how long a block takes at that rate in bytes per second.
func BlockTime(rate float64) time.Duration {
	return time.Duration(blockSize / rate * float64(time.Second))
}

// tail parks a path whose outstanding requests would end long after the rest of the download.
// Faster paths take them over.
func (a *adaptation) tail(p *peerView, left time.Duration) {
	if left > tailBegins {
		return
	}
	for _, i := range a.where(p, Parked) {
		// Other paths have its requests by now. With an empty queue, it takes only what it can
		// deliver.
		c, rate := a.cand(i), a.known(i).Rate
		parked := a.v.Now.Sub(c.Since)
		if a.mem(i).Why != Late || c.Outstanding > 0 || rate == 0 || parked < tailWorth {
			continue
		}
		if need := 2*c.RTT + BlockTime(rate); 4*need < left {
			a.use(i, "other paths took over its requests; %.1f s are left, a block takes %.1f s",
				left.Seconds(), need.Seconds())
		}
	}
	for _, i := range a.where(p, Active) {
		c, rate := a.cand(i), a.current(i)
		if rate.Rate == 0 || len(a.where(p, Active, Probing)) < 2 {
			continue
		}
		owed := c.RTT + time.Duration(min(c.Outstanding, unstolen))*BlockTime(rate.Rate)
		if owed > 2*left && owed > tailWorth {
			a.do(i, Park, "the last of its %d requests need %.1f s, "+
				"but the rest of the download needs %.1f s",
				c.Outstanding, owed.Seconds(), left.Seconds())
			a.standBy(i, Late, longestBackoff)
		}
	}
}

// finish returns every parked path that can deliver a block before the others are done.
func (a *adaptation) finish(p *peerView, left time.Duration) {
	a.tail(p, left)
	for _, i := range a.where(p, Parked, Probing) {
		m, rate := a.mem(i), a.known(i).Rate
		if m.Why == Late || m.Why == Waste || rate == 0 {
			continue
		}
		if need := 2*a.cand(i).RTT + BlockTime(rate); need < left {
			a.use(i, "the last pieces: %.1f s left, a block takes %.1f s",
				left.Seconds(), need.Seconds())
		}
	}
	p.Group = nil
}
