package scionnet

import (
	"crypto/rand"
	"crypto/subtle"
	"sync"
	"sync/atomic"
	"time"
)

// largePackets is what is known of a route about packets larger than quic-go's (bundle.go).
//
//	both sides do frames, a size to try ──► probe ──► answer: bundles of that size
//	                                         │  no answer: again, then smaller, then never
//	packets are lost ──► probe of the size in use; three without an answer: no bundles any more
type largePackets struct {
	// limit is the largest payload of a datagram to send; 0: no bundles.
	limit atomic.Int32
	// offered: a connection is there on which we have said that we do frames. Only then may any
	// come.
	offered atomic.Bool

	mu       sync.Mutex
	allowed  bool // both sides of a connection have said that they do frames
	target   int  // the payload to probe for; 0: not known
	sent     int  // the size of the last probe, in payload bytes
	token    [tokenLen]byte
	tries    int
	disabled bool // it has been tried in vain, or worked and then did not

	unanswered  int       // probes without an answer since bundles were last known to pass
	lastRecheck time.Time // when the last of them was sent
}

// probesEach is how often a size is tried, since a probe may be lost for other reasons, and
// probeSizes what is tried after the size that the MTU promises: some routers carry less than they
// announce.
const (
	probesEach   = 2
	leastBundle  = frameHeader + 2*leastPacket
	probesInAll  = 6
	secondChance = 8192
	thirdChance  = 4096
	// mostDoubts probes, doubtEvery apart, must stay without an answer for bundles to end: a path
	// that loses one packet in ten does that once in a thousand.
	maxUnanswered = 3
	recheckEvery  = 400 * time.Millisecond
)

// agree notes that the peer does frames and, if it is known (not 0), the payload that the path's
// MTU leaves room for.
func (l *largePackets) allow(target int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowed = true
	l.target = max(l.target, target)
}

// probed notes that a probe of the peer has arrived: where it fits, ours should.
func (l *largePackets) probeArrived(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = max(l.target, size)
}

// probe gives the frame to send now, if any; most is the largest payload that the host can send.
// While bundles are sent, there is a probe only if packets have been lost of late.
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

// doubt gives a probe of the size in use, or ends bundles if too many of those had no answer.
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
		_, _ = rand.Read(l.token[:]) // does not fail
	}
	b := make([]byte, size)
	putFrame(b, kindProbe, size)
	copy(b[frameHeader:], l.token[:])
	return b
}

// answered tells whether an answer is one to our probe, and lets bundles of its size go.
func (l *largePackets) answerArrived(size int, token []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.disabled || l.sent == 0 || size != l.sent || subtle.ConstantTimeCompare(token, l.token[:]) != 1 {
		return false
	}
	l.unanswered = 0
	return l.limit.CompareAndSwap(0, int32(size))
}

// stop ends bundles on the route.
func (l *largePackets) disable() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.disabled = true
	l.limit.Store(0)
}

// atMost bounds what bundles may fill.
func (l *largePackets) limitTo(payload int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.target > payload {
		l.target = payload
	}
	if int(l.limit.Load()) > payload {
		l.limit.Store(int32(max(payload, 1))) // too little for a bundle is none
	}
}

func (l *largePackets) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit.Store(0)
	l.offered.Store(false)
	l.allowed, l.target, l.sent, l.tries, l.disabled, l.unanswered = false, 0, 0, 0, false, 0
}
