package wire

import (
	"encoding/binary"
	"math"
	"time"
)

// What has the engine ask on, where it would ask nobody any more.
//
// By itself the engine asks a peer for more blocks when the last one that it has asked for is there, and not before; never because
// of a reject; and it has no timeouts. One block that a peer forgets, or one reject at the end, and that connection is over, with
// its last requests nobody else's either.
//
//	asked --half of them are there-----------------------> told of a suggestion, see FirstRequests
//	      --the last one is rejected---------------------> told of a suggestion, before the reject
//	      --silence, see waiting-> taken back: told of rejects that the peer has not sent
//	                               and again, with no block between: snubbed, told of a choke
//	idle  --200 ms---------------------------------------> told of a suggestion
//
// A suggestion (BEP 6) means no more to the engine than that it should look. Where the peer does not know that extension, a choke
// and an unchoke do the same and take back all requests, too.
//
// An idle connection takes a block that another one has asked for, if that one has more to ask for. The engine moves the request
// and cancels the one before. But what has been sent is not called back by a cancel, and arrives twice: where
// pieces are scarce, as in a swarm that waits for its seed, as much as there is of use. So a request is left alone for the time in
// which it would be answered at most distances.
//
// A peer that says it has everything and never answers (it snubs us) would be asked again first each time, and be the only one
// that is asked for the last block. So while other connections can be asked, the engine believes that such a peer chokes us, for
// longer each time. Only a block shows that it serves us after all.

const (
	// FirstRequests is the size of the first batch of requests: 256 kB, as much as slow start sends in
	// four round trips. With more, the first of several peers would be asked for all pieces of a small
	// torrent. When half of a batch is answered, the engine is told to ask for more.
	FirstRequests = 16
	// maxLate is how many answers to requests that were taken back are expected. Those beyond it end the connection if they come.
	maxLate = 4096
)

// waiting is what a connection waits for.
type waiting struct {
	most  int           // requests at a time since the last time that there were none
	since time.Time     // when a byte of a block came last, or the first request was made
	gap   time.Duration // the longest time between two blocks, lately
	begun time.Time     // when the block began that is still coming; zero: there is none
}

const (
	// A peer is given up that is silent for the longer of some gaps, some round trips, and this. Shorter, and a path that comes back
	// after a few seconds brings everything twice. Stragglers are requests left over of at least strayParts times as many:
	// the peer goes on with whatever it has forgotten, so that little is lost if it has not.
	silencePatience, silenceGaps = 10 * time.Second, 16
	strayPatience, strayGaps     = time.Second, 4
	strayParts                   = 8
	silenceTrips                 = 4
	// firstGap is taken for the gap at the beginning: 16 of them are how long the first block may take, at 4 kbit/s.
	firstGap = 2 * time.Second
	// blockPatience is how long a block may take, from its first byte to its last, while another connection is idle: nobody
	// else can be asked for it meanwhile, and a peer may send it byte by byte. Shorter, and blocks are lost that share a limit of
	// 10 kbit/s with twenty others.
	blockPatience = 5 * time.Minute
	// gapMemory is how many blocks it takes to forget most of a gap.
	gapMemory = 32
)

const (
	// leastSnub is how long a peer that snubs us is not asked for the first time, and mostSnub the longest time. Shorter, and
	// many such peers keep the last block among themselves; longer, and a peer that answers again is not noticed.
	leastSnub, mostSnub = 30 * time.Second, 4 * time.Minute
)

// snub is what is known of a peer that does not answer. The zero value is that of a new connection.
type snub struct {
	until  time.Time     // it is not asked before; zero: it may be asked
	last   time.Duration // how long it was not asked the last time; 0: a block has come since
	blocks bool          // since requests were taken back the last time
}

// takesBack notes that requests were taken back, while others can be asked or not.
func (s snub) takesBack(others bool, now time.Time) snub {
	if others && !s.blocks && s.until.IsZero() {
		s.last = min(max(leastSnub, 2*s.last), mostSnub)
		s.until = now.Add(s.last)
	}
	s.blocks = false
	return s
}

// gets notes a block.
func (s snub) gets() snub { return snub{blocks: true} }

// over notes that time has passed.
func (s snub) over(others bool, now time.Time) snub {
	if !others || !now.Before(s.until) {
		s.until = time.Time{}
	}
	return s
}

func newWaiting() waiting { return waiting{gap: firstGap} }

// asks notes one more request, after so many.
func (w waiting) asks(before int, now time.Time) waiting {
	if before == 0 {
		w.most, w.since = 0, now
	}
	w.most = max(w.most, before+1)
	return w
}

// gets notes a block that has begun to arrive.
func (w waiting) gets(now time.Time) waiting {
	w.gap = max(now.Sub(w.since), w.gap-w.gap/gapMemory)
	w.since, w.begun = now, now
	return w
}

// comes notes that more of a block has come, and whether there is more to come.
func (w waiting) comes(more bool, now time.Time) waiting {
	if w.since = now; !more {
		w.begun = time.Time{}
	}
	return w
}

// endless tells whether a block has been coming for too long.
func (w waiting) endless(now time.Time) bool {
	return !w.begun.IsZero() && now.Sub(w.begun) >= blockPatience
}

// Situation is what TakeBack needs to know of the other connections.
type Situation struct {
	Others bool // other connections can be asked
	Idle   bool // and one of them is not asked for anything
	RTT    time.Duration
	Now    time.Time
}

// over tells whether so many requests have waited for too long. A connection's only request is left over where another is idle.
func (w waiting) over(asked int, a Situation) bool {
	if asked == 0 {
		return false
	}
	least := max(silencePatience, silenceGaps*w.gap)
	if strayParts*asked <= w.most || asked == 1 && a.Idle {
		least = max(strayPatience, strayGaps*w.gap)
	}
	return a.Now.Sub(w.since) >= max(least, silenceTrips*a.RTT)
}

// canAsk tells whether the engine may ask the peer and has a reason to, and whether it does.
func (f *Filter) CanAsk() (can, asked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.openLocked() && f.keen, len(f.asked) > 0
}

// suggestion has the engine look for something to ask the peer for.
var suggestion = binary.BigEndian.AppendUint32([]byte{0, 0, 0, 5, msgSuggest}, 0)

// nudge has the engine look for something to ask this peer for.
func (f *Filter) Nudge() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shown && len(f.forEngine) == 0 && len(f.asked) == 0 {
		f.nudgeLocked()
	}
}

func (f *Filter) nudgeLocked() {
	switch {
	case !f.known.in || !f.known.out || f.closed:
	case !f.slow:
		f.giveLocked(suggestion)
	case f.shown:
		f.giveLocked(plain(msgChoke))
		f.giveLocked(plain(msgUnchoke))
	}
}

// takeBack takes back all requests if the peer has been silent for too long, and has the engine ask anew, the peer for other blocks
// or others for these. It tells whether it did, and whether the engine does not ask this peer any more.
func (f *Filter) TakeBack(a Situation) (taken, snubbed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.wait.over(len(f.asked), a) || f.closed {
		return false, false
	}
	before := f.snub
	f.snub = before.takesBack(a.Others, a.Now)
	snubbed = f.snub.until != before.until
	blocks := blocksOf(f.asked)
	clear(f.asked)
	if f.showLocked(); f.shown {
		f.nudgeLocked() // first: after a reject the engine does not look
	}
	f.tellLocked(encode(msgCancel, blocks...))
	if f.slow {
		return true, snubbed // the engine has forgotten them, and takes them still
	}
	f.giveLocked(encode(msgReject, blocks...))
	for _, b := range blocks {
		if n := f.late[b]; n > 0 && n < math.MaxUint8 || n == 0 && len(f.late) < maxLate {
			f.late[b]++
		}
	}
	return true, snubbed
}

// endSnub has the engine ask the peer again if it is time, or if there are no others to ask.
func (f *Filter) EndSnub(others bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snub = f.snub.over(others, now)
	f.showLocked()
}

// answeredLocked looks at a block or reject of the peer, and tells what becomes of it.
func (f *Filter) answeredLocked(m message, now time.Time) verdict {
	_, asked := f.asked[m.block]
	block := m.kind == msgPiece
	if block {
		f.wait, f.snub = f.wait.gets(now), f.snub.gets()
		f.showLocked()
	}
	if late := f.late[m.block]; late > 0 && !(asked && block) {
		// An answer that was given up. The engine would end the connection because of it. Of two answers to two requests the
		// block is the one that the engine waits for.
		if late == 1 {
			delete(f.late, m.block)
		} else {
			f.late[m.block]--
		}
		return drop
	}
	delete(f.asked, m.block)
	if block {
		f.moved = true
		// Once for each batch. A few requests at the end of a torrent need no look.
		if n := len(f.asked); n > 0 && 2*n <= f.batch && f.batch >= FirstRequests/2 && f.shown && !f.slow {
			f.batch = n
			f.giveLocked(suggestion)
		}
		return pass
	}
	if asked && f.moved && len(f.asked) == 0 && f.shown {
		// Not if the peer rejects everything: it would be asked again and again, as fast as it rejects.
		f.moved = false
		f.nudgeLocked()
		f.giveLocked(encode(msgReject, m.block))
		return drop
	}
	return pass
}

// comes notes that more of a block has come, and whether there is more to come.
func (f *Filter) comes(more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wait = f.wait.comes(more, time.Now())
}

func (f *Filter) Endless(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wait.endless(now)
}
