package scionnet

import (
	"crypto/rand"
	"crypto/subtle"
	"sync"
	"sync/atomic"
	"time"
)

// largePackets is the state of a route's packets that are larger than quic-go's (bundle.go).
//
//	both sides announce frames, and a size is known ──► probe ──► answer: bundles of that size
//	                                                      │  no answer: again, smaller, then never
//	packets are lost ──► probe of the size in use; three without an answer: no bundles any more
type largePackets struct {
	// limit is the largest payload of a datagram to send; 0: no bundles.
	limit atomic.Int32
	// offered is set once we have announced frames on a connection of this route. Only then may
	// frames arrive.
	offered atomic.Bool

	mu       sync.Mutex
	allowed  bool // both sides of a connection have announced frames
	target   int  // the payload to probe for; 0: not known
	sent     int  // the payload size of the last probe
	token    [tokenLen]byte
	tries    int
	disabled bool // no probe was answered, or bundles stopped passing

	unanswered  int       // probes without an answer since bundles last passed
	lastRecheck time.Time // when the last of them was sent
}

// probesEach is the number of probes of one size, since a probe may be lost for other reasons.
// After the size that the MTU promises come secondChance and thirdChance: some routers carry less
// than they announce.
const (
	probesEach   = 2
	leastBundle  = frameHeader + 2*leastPacket
	probesInAll  = 6
	secondChance = 8192
	thirdChance  = 4096
	// maxUnanswered is the number of unanswered probes, recheckEvery apart, that ends bundles. On a
	// path that loses one packet in ten that happens by chance once in a thousand times.
	maxUnanswered = 3
	recheckEvery  = 400 * time.Millisecond
)

// allow records that the peer understands frames, and the largest payload by the path's MTU, if
// that is known (not 0).
func (l *largePackets) allow(target int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowed = true
	l.target = max(l.target, target)
}

// probeArrived records that a probe of the peer has arrived: our packets of that size should then
// arrive, too.
func (l *largePackets) probeArrived(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = max(l.target, size)
}

// nextProbe returns the probe to send now, if any; most is the largest payload that the host can
// send. While bundles are in use, it returns a probe only after recent losses.
func (l *largePackets) nextProbe(most int, lossy bool, now time.Time) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.allowed || l.disabled {
		return nil, false
	}
	if limit := int(l.limit.Load()); limit != 0 {
		return l.recheck(limit, lossy, now)
	}
	size := min(l.target, most)
	switch l.tries / probesEach {
	case 1:
		size = min(size, secondChance)
	case 2:
		size = min(size, thirdChance)
	}
	if size < leastBundle {
		return nil, false
	}
	if l.tries == probesInAll {
		l.disabled = true
		return nil, false
	}
	l.tries++
	return l.frame(size), true
}

// recheck returns a probe of the size in use. It ends bundles if too many of those had no answer.
func (l *largePackets) recheck(limit int, lossy bool, now time.Time) ([]byte, bool) {
	if limit < leastBundle || !lossy && l.unanswered == 0 || now.Sub(l.lastRecheck) < recheckEvery {
		return nil, false
	}
	if l.unanswered == maxUnanswered {
		l.disabled = true
		l.limit.Store(0)
		return nil, false
	}
	l.unanswered++
	l.lastRecheck = now
	return l.frame(limit), true
}

func (l *largePackets) frame(size int) []byte {
	if size != l.sent {
		l.sent = size
		_, _ = rand.Read(l.token[:]) // never fails
	}
	b := make([]byte, size)
	putFrame(b, kindProbe, size)
	copy(b[frameHeader:], l.token[:])
	return b
}

// answerArrived tells whether an answer belongs to our last probe and enables bundles of its size.
func (l *largePackets) answerArrived(size int, token []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.disabled || l.sent == 0 || size != l.sent || subtle.ConstantTimeCompare(token, l.token[:]) != 1 {
		return false
	}
	l.unanswered = 0
	return l.limit.CompareAndSwap(0, int32(size))
}

// disable ends bundles on the route.
func (l *largePackets) disable() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.disabled = true
	l.limit.Store(0)
}

// limitTo lowers the size of bundles to that payload.
func (l *largePackets) limitTo(payload int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.target > payload {
		l.target = payload
	}
	if int(l.limit.Load()) > payload {
		l.limit.Store(int32(max(payload, 1))) // too small for bundles
	}
}

func (l *largePackets) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit.Store(0)
	l.offered.Store(false)
	l.allowed, l.target, l.sent, l.tries, l.disabled, l.unanswered = false, 0, 0, 0, false, 0
}
