package wire

import (
	"math"
	"slices"
	"time"

	"braid/pathsel"
)

// share decides who may use a rate that connections share. It has no clock and no goroutine: limit
// has.
//
// The rate is a token bucket. Its tokens go to the network that has had the least so far, within it
// to the host, the key and the connection that have had the least (start-time fair queueing on each
// level; see pathsel.Origin for the levels). So nobody gains by more connections, keys or
// addresses.
//
// What a sharer has had is counted in virtual time: as the bytes that somebody who always wants
// more would have got. A sharer that comes back from a pause gets the count of the others, less a
// small credit. Without the credit, sharers with many connections would gain, since a single
// connection pauses between any two of its writes.
type share struct {
	rate   float64 // bytes a second
	burst  float64 // bytes that may be sent at once after a pause
	credit float64
	chunk  int // bytes: no claim is larger

	tokens float64
	filled time.Time // when tokens was last updated; zero: the bucket is full
	root   sharer
}

// sharer is a network, a host, a key or a connection, which has nothing below it.
type sharer struct {
	name  string
	above *sharer   // nil: it is the root, or was removed
	below []*sharer // in the order in which they were added
	had   float64   // in the virtual time of the one above
	clock float64   // virtual time of those below: of the last grant
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
	// chunkTime is the time that a chunk takes. Shorter, and a machine with late timers grants many
	// chunks at a time, of which a connection that waits gets only one; longer, and small messages
	// wait.
	chunkTime = 4 * time.Millisecond
	// The bounds of a chunk. Less than a packet wastes packets; the engine never writes more at
	// once.
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

// join adds a connection. Its count begins where the others are.
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

// move gives a connection, with its claim, another origin, which has been proven.
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

// note sets the claim of a flow, which is counted on all levels.
func (s *share) note(f *flow, want int) {
	change := min(want, 1) - min(f.want, 1)
	f.want = want
	for x := &f.sharer; x != nil; x = x.above {
		x.wait += change
	}
}

// serve grants the claims that the time allows, in the right order. It returns when the next claim
// can be granted; 0: there is none.
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
