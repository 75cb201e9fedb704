package pathsel

import (
	"fmt"
	"math"
	"time"
)

const (
	// blockSize is the size in bytes of what one request asks for.
	blockSize = 16 << 10
	// tailBegins is the time left from which a path's outstanding requests are weighed. Earlier, and
	// slow paths are sent away while they are still useful.
	tailBegins = 5 * time.Second
	// unstolen is how many of a slow path's requests are left to it in the end: a connection that runs dry takes half of
	// another's queue, again and again, but not the last ones, which are on their way.
	unstolen = 4
	// tailWorth is the delay worth avoiding: taking requests back costs a round trip and some duplicates.
	tailWorth = time.Second
	// endgame is the time left from which every path that can still deliver is used. Longer, and a link
	// that others use is taken for longer; shorter, and a returned path ends before it has begun.
	endgame = 3 * time.Second
	// noExperiments is the time left below which nothing could be learnt that still pays.
	noExperiments = 20 * time.Second
)

// timeLeft is what the missing bytes take at the present rate of all peers; very long if unknown.
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

// tail parks a path whose outstanding requests would keep the download waiting after all others are done.
// They go to faster paths.
func (a *adaptation) tail(p *peerView, left time.Duration) {
	if left > tailBegins {
		return
	}
	for _, i := range a.where(p, Parked) {
		// The requests are the others' by now. With an empty queue it takes what it can deliver, and no more.
		c, rate := a.cand(i), a.known(i).Rate
		if a.mem(i).Why != Late || c.Outstanding > 0 || rate == 0 || a.v.Now.Sub(c.Since) < tailWorth {
			continue
		}
		if need := 2*c.RTT + time.Duration(blockSize/rate*float64(time.Second)); 4*need < left {
			a.do(i, Return, fmt.Sprintf("the others have its requests; %.1f s are left, a block takes %.1f s", left.Seconds(), need.Seconds()))
			a.mem(i).Why = Used
		}
	}
	for _, i := range a.where(p, Active) {
		c, rate := a.cand(i), a.current(i)
		if rate.Rate == 0 || len(a.where(p, Active, Probing)) < 2 {
			continue
		}
		owed := c.RTT + time.Duration(float64(min(c.Outstanding, unstolen))*blockSize/rate.Rate*float64(time.Second))
		if owed > 2*left && owed > tailWorth {
			a.do(i, Park, fmt.Sprintf("the last of its %d requests need %.1f s, the rest of the download %.1f s", c.Outstanding, owed.Seconds(), left.Seconds()))
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
		if need := 2*a.cand(i).RTT + time.Duration(blockSize/rate*float64(time.Second)); need < left {
			a.do(i, Return, fmt.Sprintf("the last pieces: %.1f s left, a block takes %.1f s", left.Seconds(), need.Seconds()))
			m.Why = Used
		}
	}
	a.m.peer(p.id).Trial = nil
}
