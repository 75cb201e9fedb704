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
//	a late answer ──► bundles of that size after all
type largePackets struct {
	// limit is the largest payload of a datagram to send; 0: no bundles.
	limit atomic.Int32
	// offered is set once we have announced frames on a connection of this route. Only then may
	// frames arrive.
	offered atomic.Bool

	mu        sync.Mutex
	allowed   bool                   // both sides of a connection have announced frames
	target    int                    // the payload to probe for; 0: not known
	sent      map[int][tokenLen]byte // the tokens of the probes, by payload size
	lastProbe time.Time              // when the last probe was sent
	tries     int                    // probes before the first answer
	disabled  bool                   // no probe was answered, or bundles stopped passing

	unanswered int // probes without an answer since bundles last passed
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
	// maxUnanswered is the number of unanswered probes that ends bundles. On a path that loses one
	// packet in ten that happens by chance once in a thousand times.
	maxUnanswered = 3
	// answerTime is the least time that an answer has before the next probe.
	answerTime = 400 * time.Millisecond
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
// arrive, too. It tells whether that is news.
func (l *largePackets) probeArrived(size int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := size > l.target
	l.target = max(l.target, size)
	return news
}

// nextProbe returns the probe to send now, if any; most is the largest payload that the host can
// send, and roundTrip the longest that the path's round trip usually takes. While bundles are in
// use, it returns a probe only after recent losses.
func (l *largePackets) nextProbe(most int, lossy bool, roundTrip time.Duration, now time.Time) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Without the round trip, answers over a long path, or from a busy host, would always be late.
	if !l.allowed || l.disabled || now.Sub(l.lastProbe) < max(answerTime, roundTrip) {
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
	return l.probe(size, now), true
}

// recheck returns a probe of the size in use. It ends bundles if too many of those had no answer.
func (l *largePackets) recheck(limit int, lossy bool, now time.Time) ([]byte, bool) {
	if limit < leastBundle || !lossy && l.unanswered == 0 {
		return nil, false
	}
	if l.unanswered == maxUnanswered {
		l.disabled = true
		l.limit.Store(0)
		return nil, false
	}
	l.unanswered++
	return l.probe(limit, now), true
}

// probe returns a probe of that size to send now.
func (l *largePackets) probe(size int, now time.Time) []byte {
	token, again := l.sent[size]
	if !again {
		_, _ = rand.Read(token[:]) // never fails
		if l.sent == nil {
			l.sent = map[int][tokenLen]byte{}
		}
		l.sent[size] = token
	}
	l.lastProbe = now
	b := make([]byte, size)
	putFrame(b, kindProbe, size)
	copy(b[frameHeader:], token[:])
	return b
}

// answerArrived tells whether an answer to a probe of ours enables larger bundles. An answer may be
// later than a probe of another size, and than the end of bundles: large packets pass all the same.
func (l *largePackets) answerArrived(size int, token []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	sent, ok := l.sent[size]
	if !ok || subtle.ConstantTimeCompare(token, sent[:]) != 1 {
		return false
	}
	l.unanswered, l.disabled = 0, false
	larger := size > int(l.limit.Load())
	if larger {
		l.limit.Store(int32(size))
	}
	return larger
}

// inUse tells whether bundles are sent.
func (l *largePackets) inUse() bool { return l.limit.Load() >= leastBundle }

// disable ends bundles on the route.
func (l *largePackets) disable() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.disabled = true
	l.limit.Store(0)
}

// limitTo lowers the size of bundles to that payload. No answer to an earlier probe raises it again.
func (l *largePackets) limitTo(payload int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.sent)
	l.target = min(l.target, payload)
	if int(l.limit.Load()) > payload {
		l.limit.Store(int32(max(payload, 1))) // too small for bundles
	}
}

// shrink takes room from all payloads, since headers have become longer.
func (l *largePackets) shrink(by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.sent)
	l.target = max(l.target-by, 0)
	if limit := int(l.limit.Load()); limit != 0 {
		l.limit.Store(int32(max(limit-by, 1)))
	}
}

func (l *largePackets) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit.Store(0)
	l.offered.Store(false)
	l.allowed, l.target, l.tries, l.disabled, l.unanswered = false, 0, 0, false, 0
	l.sent, l.lastProbe = nil, time.Time{}
}
