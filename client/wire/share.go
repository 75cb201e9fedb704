package wire

import (
	"math"
	"slices"
	"time"

	"braid/pathsel"
)

// share divides a rate between connections: it decides which of them may send next, and how much.
// It only computes: limit, which has a clock, tells it the time and wakes the connections.
//
// The rate is a token bucket. Its tokens go to the network that has had the least so far, within it
// to the host, the key and the connection that have had the least (start-time fair queueing on each
// level; see pathsel.Origin for the levels). So nobody gains by more connections, keys or
// addresses.
//
// Each sharer has a count of the bytes that it got, and the sharer with the least count is served
// next. The count stands still while a sharer wants nothing. This must not let it catch up at the
// cost of the others: its next claim raises its count to that of the sharer that was served last,
// minus a small credit. A single connection pauses between its writes. Without the credit, sharers
// with many connections would gain from these pauses.
type share struct {
	rate   float64 // bytes a second
	burst  float64 // bytes that may be sent at once after a pause
	credit float64 // bytes by which the count of a sharer may be behind after a pause
	chunk  int     // bytes: no claim is larger

	tokens float64
	filled time.Time // when tokens was last updated; zero: the bucket is full
	root   sharer
}

// sharer is a network, a host, a key or a connection. A connection has nothing below it.
type sharer struct {
	name  string
	above *sharer   // nil: it is the root, or was removed
	below []*sharer // in the order in which they were added
	had   float64   // its count of bytes, see share
	clock float64   // the count of the sharer below that was served last
	wait  int       // claims that are not granted yet, its own or below it
	flow  *flow     // nil: it is not a connection
}

// flow is one direction of a connection.
type flow struct {
	sharer
	want  int           // bytes claimed and not granted; 0: none
	ready chan struct{} // for limit
}

const (
	// chunkTime is the time that a chunk takes. If it is shorter, a machine with late timers grants
	// many chunks at a time, but only one to each connection. If it is longer, small messages wait.
	chunkTime = 4 * time.Millisecond
	// The bounds of a chunk. Below the least, packets would not be full; the engine never writes
	// more than the most at once.
	minChunk = 2 << 10
	maxChunk = 64 << 10
	// burstTime is how late a timer may be before the rate suffers.
	burstTime = 50 * time.Millisecond
	// grain allows for rounding errors, in bytes.
	grain = 1e-3
)

func newShare(bitsPerSecond int64) *share {
	rate := float64(bitsPerSecond) / 8
	chunk := max(minChunk, min(maxChunk, int(rate*chunkTime.Seconds())))
	burst := max(2*float64(chunk), rate*burstTime.Seconds())
	return &share{rate: rate, burst: burst, credit: burst, chunk: chunk, tokens: burst}
}

// join adds a connection. On each level its count begins with that of the sharer that was served
// last.
func (s *share) join(o pathsel.Origin) *flow {
	f := &flow{ready: make(chan struct{}, 1)}
	f.flow = f
	s.put(f, o)
	return f
}

func (s *share) put(f *flow, o pathsel.Origin) {
	at := &s.root
	for _, name := range []string{o.Net, o.Host, o.Key} {
		i := slices.IndexFunc(at.below, func(x *sharer) bool { return x.name == name })
		if i < 0 {
			i = len(at.below)
			at.add(&sharer{name: name})
		}
		at = at.below[i]
	}
	at.add(&f.sharer)
}

func (x *sharer) add(y *sharer) {
	y.above, y.had = x, x.clock
	x.below = append(x.below, y)
}

// leave removes the connection and its claim.
func (s *share) leave(f *flow) {
	s.note(f, 0)
	for x := &f.sharer; x.above != nil && len(x.below) == 0; {
		above := x.above
		above.below = slices.DeleteFunc(above.below, func(y *sharer) bool { return x == y })
		x.above, x = nil, above
	}
}

// move puts a connection and its claim under another origin, which it has proven by now.
func (s *share) move(f *flow, o pathsel.Origin) {
	if f.above == nil {
		return
	}
	want := f.want
	s.leave(f)
	s.put(f, o)
	if want > 0 {
		s.claim(f, want)
	}
}

// claim asks for n bytes, from 1 to a chunk. A flow has one claim at a time, and none once it has
// left.
func (s *share) claim(f *flow, n int) {
	if f.above == nil {
		return
	}
	for x := &f.sharer; x.above != nil; x = x.above {
		x.had = max(x.had, x.above.clock-s.credit)
	}
	s.note(f, max(1, min(n, s.chunk)))
}

// lift ends the limit of the rate.
func (s *share) lift() { s.tokens, s.burst = math.Inf(1), math.Inf(1) }

// note sets the claim of a flow, which is counted on all levels.
func (s *share) note(f *flow, want int) {
	change := min(want, 1) - min(f.want, 1)
	f.want = want
	for x := &f.sharer; x != nil; x = x.above {
		x.wait += change
	}
}

// serve grants as many claims as there are tokens now, the least count first. next is the time
// until the next claim can be granted; 0: there is none.
func (s *share) serve(now time.Time) (granted []*flow, next time.Duration) {
	if !s.filled.IsZero() {
		s.tokens = min(s.burst, s.tokens+s.rate*max(0, now.Sub(s.filled).Seconds()))
	}
	s.filled = now
	for s.root.wait > 0 {
		f := s.first()
		need := float64(f.want)
		if missing := need - s.tokens; missing > grain {
			return granted, max(1, time.Duration(math.Ceil(missing/s.rate*float64(time.Second))))
		}
		s.tokens -= need
		for x := &f.sharer; x.above != nil; x = x.above {
			x.above.clock = max(x.above.clock, x.had)
			x.had += need
		}
		s.note(f, 0)
		granted = append(granted, f)
	}
	return granted, 0
}

// first is the flow whose turn it is. There must be a claim.
func (s *share) first() *flow {
	x := &s.root
	for len(x.below) > 0 {
		var next *sharer
		for _, y := range x.below {
			if y.wait > 0 && (next == nil || y.had < next.had) {
				next = y
			}
		}
		x = next
	}
	return x.flow
}
