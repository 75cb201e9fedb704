package client

import (
	"math"
	"slices"
	"time"
)

// share is a rate that peers share. It decides, and keeps no time and no goroutine: limit does that.
//
// The rate is a token bucket. What it gives goes to the peer that has had the least, and within that peer to the
// connection that has had the least, so that a peer gains nothing by having more connections (start-time fair queueing
// on two levels). "Had" is counted in virtual time: bytes that somebody who always wants more would have been given.
// Somebody who comes back from a pause stands where the others are, less a small credit: a connection is away between
// any two of its writes, and a round robin that forgets it in that moment would favour whoever has many.
type share struct {
	rate   float64 // bytes a second
	burst  float64 // bytes that may go at once after a pause
	credit float64
	chunk  int // bytes: no claim is larger

	tokens float64
	filled time.Time // when tokens were right; zero: full
	clock  float64   // virtual time of the last grant
	peers  []*sharer // in the order in which they came
}

// sharer is a peer.
type sharer struct {
	name  string
	had   float64 // in the share's virtual time
	clock float64 // virtual time among its connections
	flows []*flow
}

// flow is one direction of a connection.
type flow struct {
	peer  *sharer // nil: it has left
	had   float64
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

// join adds a connection of the peer. It has had what the others have had.
func (s *share) join(peer string) *flow {
	i := slices.IndexFunc(s.peers, func(p *sharer) bool { return p.name == peer })
	if i < 0 {
		i = len(s.peers)
		s.peers = append(s.peers, &sharer{name: peer, had: s.clock})
	}
	p := s.peers[i]
	f := &flow{peer: p, had: p.clock, ready: make(chan struct{}, 1)}
	p.flows = append(p.flows, f)
	return f
}

// leave takes the connection out, with its claim.
func (s *share) leave(f *flow) {
	p := f.peer
	if p == nil {
		return
	}
	f.peer, f.want = nil, 0
	p.flows = slices.DeleteFunc(p.flows, func(x *flow) bool { return x == f })
	if len(p.flows) == 0 {
		s.peers = slices.DeleteFunc(s.peers, func(x *sharer) bool { return x == p })
	}
}

// claim asks for n bytes, 1 to a chunk. A flow has one claim at a time; one that has left has none.
func (s *share) claim(f *flow, n int) {
	p := f.peer
	if p == nil {
		return
	}
	p.had = max(p.had, s.clock-s.credit)
	f.had = max(f.had, p.clock-s.credit)
	f.want = max(1, min(n, s.chunk))
}

// serve grants what the time allows, in the right order, and says when the next claim can be granted: 0 if there is none.
func (s *share) serve(now time.Time) (granted []*flow, next time.Duration) {
	if !s.filled.IsZero() {
		s.tokens = min(s.burst, s.tokens+s.rate*max(0, now.Sub(s.filled).Seconds()))
	}
	s.filled = now
	for {
		p, f := s.first()
		if f == nil {
			return granted, 0
		}
		need := float64(f.want)
		if missing := need - s.tokens; missing > grain {
			return granted, max(1, time.Duration(math.Ceil(missing/s.rate*float64(time.Second))))
		}
		s.tokens -= need
		s.clock, p.clock = max(s.clock, p.had), max(p.clock, f.had)
		p.had, f.had = p.had+need, f.had+need
		f.want = 0
		granted = append(granted, f)
	}
}

// first is whose turn it is: nil if nobody has a claim.
func (s *share) first() (peer *sharer, conn *flow) {
	for _, p := range s.peers {
		if peer != nil && peer.had <= p.had {
			continue
		}
		if f := p.first(); f != nil {
			peer, conn = p, f
		}
	}
	return peer, conn
}

func (p *sharer) first() (conn *flow) {
	for _, f := range p.flows {
		if f.want > 0 && (conn == nil || f.had < conn.had) {
			conn = f
		}
	}
	return conn
}
