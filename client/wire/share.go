package wire

import (
	"math"
	"slices"
	"time"

	"braid/pathsel"
)

// share is a rate that peers share. It decides, and keeps no time and no goroutine: limit does that.
//
// The rate is a token bucket. What it gives goes to the network that has had the least, within it to the host, there to the
// key, and of its connections to the one that has had the least (start-time fair queueing on each level; see
// pathsel.Origin for the levels). So nobody gains by having more connections, keys or addresses.
// "Had" is counted in virtual time: bytes that somebody who always wants more would have been given.
// Somebody who comes back from a pause stands where the others are, less a small credit: a connection is away between
// any two of its writes, and a round robin that forgets it in that moment would favour whoever has many.
type share struct {
	rate   float64 // bytes a second
	burst  float64 // bytes that may go at once after a pause
	credit float64
	chunk  int // bytes: no claim is larger

	tokens float64
	filled time.Time // when tokens were right; zero: full
	root   sharer
}

// sharer is a network, a host, a key, or, without anything below it, a connection.
type sharer struct {
	name  string
	above *sharer   // nil: it is the root, or has left
	below []*sharer // in the order in which they came
	had   float64   // in the virtual time of the one above
	clock float64   // virtual time of those below: of the last grant
	wait  int       // claims below it, or its own, that are not granted
	flow  *flow     // nil: it is no connection
}

// flow is one direction of a connection.
type flow struct {
	sharer
	want  int           // bytes claimed and not granted; 0: none
	ready chan struct{} // for limit
}

const (
	// chunkTime is the time that a chunk takes. Shorter, and a machine whose timers are late gives many chunks at a
	// time, of which a connection that waits for one gets one; longer, and small messages wait longer.
	chunkTime = 4 * time.Millisecond
	// The bounds of a chunk: less than a packet wastes packets, and more than this the engine does not write at once.
	minChunk = 2 << 10
	maxChunk = 64 << 10
	// burstTime is how late a timer may be without loss of rate.
	burstTime = 50 * time.Millisecond
	// grain forgives errors of rounding, in bytes.
	grain = 1e-3
)

func newShare(bitsPerSecond int64) *share {
	rate := float64(bitsPerSecond) / 8
	chunk := max(minChunk, min(maxChunk, int(rate*chunkTime.Seconds())))
	burst := max(2*float64(chunk), rate*burstTime.Seconds())
	return &share{rate: rate, burst: burst, credit: burst, chunk: chunk, tokens: burst}
}

// join adds a connection. It has had what the others have had.
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

// leave takes the connection out, with its claim.
func (s *share) leave(f *flow) {
	s.note(f, 0)
	for x := &f.sharer; x.above != nil && len(x.below) == 0; {
		above := x.above
		above.below = slices.DeleteFunc(above.below, func(y *sharer) bool { return x == y })
		x.above, x = nil, above
	}
}

// move takes a connection, with its claim, to an origin that was found to be the true one.
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

// claim asks for n bytes, 1 to a chunk. A flow has one claim at a time; one that has left has none.
func (s *share) claim(f *flow, n int) {
	if f.above == nil {
		return
	}
	for x := &f.sharer; x.above != nil; x = x.above {
		x.had = max(x.had, x.above.clock-s.credit)
	}
	s.note(f, max(1, min(n, s.chunk)))
}

// note sets the claim of a flow, which is counted on all levels.
func (s *share) note(f *flow, want int) {
	change := min(want, 1) - min(f.want, 1)
	f.want = want
	for x := &f.sharer; x != nil; x = x.above {
		x.wait += change
	}
}

// serve grants what the time allows, in the right order, and says when the next claim can be granted: 0 if there is none.
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

// first is whose turn it is. There is a claim.
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
