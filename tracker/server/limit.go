package server

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// limiters bound the requests of each host and each AS, and of all hosts together whose AS is not
// proven.
type limiters struct{ hosts, ases, claimed *limiter }

// Refusals of too many requests. A minute is the shortest time that BEP 31 can express.
var (
	tooMany = &wire.Failure{
		Reason:  "too many requests from your address or network; slow down",
		RetryIn: time.Minute,
	}
	tooManyClaimed = &wire.Failure{
		Reason:  "the tracker has not verified your AS yet, and has too many such requests",
		RetryIn: time.Minute,
	}
)

// claimedRate is how many requests without a proven ISD-AS are answered a second. An honest peer
// makes at most one of them. Without the bound a liar could make as many requests as all honest
// peers.
const claimedRate = 100

func (l *limiters) take(g *admission, r request) error {
	if r.claimed {
		if !l.claimed.take(swarm.Origin{}, claimedRate, r.at) {
			return tooManyClaimed
		}
		return nil
	}
	if !l.hosts.take(swarm.HostOf(r.from), g.cfg.PerHostRate, r.at) ||
		r.from.IsSCION() && !l.ases.take(swarm.Origin{IA: r.from.IA}, g.cfg.PerASRate, r.at) {
		return tooMany
	}
	return nil
}

// limiterSlots is the number of buckets, so memory is small and fixed. Two hosts may share a bucket
// by chance, but nobody can choose an address for it without the seed.
const limiterSlots = 1 << 16

// burst is how many seconds' worth of requests may come at once, as from a client that starts with
// many torrents.
const burst = 10

// limiter is a set of token buckets. Each is one number, the time until which its tokens are used
// up (GCRA).
type limiter struct {
	seed  maphash.Seed
	slots []atomic.Int64
	epoch time.Time
}

func newLimiter(slots int) *limiter {
	return &limiter{seed: maphash.MakeSeed(), slots: make([]atomic.Int64, slots), epoch: time.Now()}
}

// take counts one more request of the key, and reports whether it is within the rate in requests
// per second. A rate of 0 is no limit.
func (l *limiter) take(k swarm.Origin, rate float64, at time.Time) bool {
	if rate <= 0 {
		return true
	}
	now := int64(at.Sub(l.epoch))
	step := int64(float64(time.Second) / rate)
	slot := &l.slots[maphash.Comparable(l.seed, k)%uint64(len(l.slots))]
	for {
		old := slot.Load()
		next := max(old, now) + step
		if next > now+burst*int64(time.Second)+step {
			return false
		}
		if slot.CompareAndSwap(old, next) {
			return true
		}
	}
}
