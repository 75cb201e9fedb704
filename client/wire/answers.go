package wire

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"time"
)

// How the filter makes the engine request blocks where the engine alone would not.
//
// The engine asks a peer for more blocks when the last requested one has come, not before, and
// never because of a reject. It has no timeouts. So if a peer forgets one block, or rejects the
// last one, the connection idles, and the requests that are left go to no other connection.
//
//	requested --a part of them is answered-> the engine reads a suggestion, see Part
//	          --the last one is rejected---> it reads a suggestion, and then the reject
//	          --silence, see waiting-------> taken back: it reads rejects that the peer has not
//	                                         sent and, without a block since the last time, a
//	                                         choke, see snub
//	          --a message without end------> the connection is ended
//	idle      --200 ms---------------------> it reads a suggestion
//
// A suggestion (BEP 6) makes the engine look for blocks to request, and has no other effect. On a
// connection without that extension, a choke and an unchoke do the same, but also take back all
// requests.
//
// A peer may say that it has everything, and never answer: it snubs us. The engine would ask it
// again and again, and might ask nobody else for the last block. So while other connections can be
// asked, the filter lets the engine believe that such a peer chokes us, each time for longer. A
// block from the peer ends that.

const (
	// FirstRequests is the size of the first batch of requests: 256 kB, as much as slow start sends
	// in four round trips. With more, the first of several peers would be asked for all pieces of a
	// small torrent. On long paths package client begins with more.
	FirstRequests = 16
	// frequent is the size of a batch up to which slow start may go on while it is answered.
	frequent = 256
	// maxLate bounds the late answers that may still come to requests that were taken back. An
	// answer beyond that ends the connection.
	maxLate = 4096
)

// Part is how many requests of a batch are answered before the engine is told to ask for more. In
// slow start the peer sends more than twice as much in each round trip as in the one before, so
// that it would run out of requests if half of a batch had to come first.
func Part(batch int) int {
	if FirstRequests < batch && batch <= frequent {
		return (batch + 3) / 4
	}
	return (batch + 1) / 2
}

// waiting measures how long a connection has waited for answers.
type waiting struct {
	most  int           // the most requests outstanding at a time, since there were none
	since time.Time     // when a byte of a block came last, or the first request was made
	gap   time.Duration // the longest time between two blocks, lately
	begun time.Time     // when the message that is still coming began; zero: there is none
}

const (
	// Requests are taken back after a silence of silencePatience, silenceGaps gaps or silenceTrips
	// round trips, whichever is longest. With less, all blocks would come twice from a path that is
	// down for a few seconds. If only one in strayParts of the requests is left, it is taken back
	// sooner, by strayPatience and strayGaps: the peer has most likely forgotten it, and little is
	// lost if it has not.
	silencePatience, silenceGaps = 10 * time.Second, 16
	strayPatience, strayGaps     = time.Second, 4
	strayParts                   = 8
	silenceTrips                 = 4
	// firstGap is the gap to begin with: 16 of them are the time of the first block at 4 kbit/s.
	firstGap = 2 * time.Second
	// messagePatience is how long a message may take, from its first byte to its last, while
	// another connection is idle. A peer may send it byte by byte. Meanwhile no other peer can be
	// asked for a block that this peer was asked for: in the middle of a message the engine cannot
	// be told that requests are taken back. With less time, blocks that share a limit of 10 kbit/s
	// with twenty others would be lost.
	messagePatience = 5 * time.Minute
	// gapMemory is the number of blocks after which a long gap is mostly forgotten.
	gapMemory = 32
)

const (
	// A peer that snubs us is not asked for anything during leastSnub, the next time for longer, up
	// to mostSnub. If that were shorter, several such peers would get the last request in turn; if
	// it were longer, braid would notice too late that a peer answers again.
	leastSnub, mostSnub = 30 * time.Second, 4 * time.Minute
)

// snub remembers that a peer does not answer. The zero value is for a new connection.
type snub struct {
	until  time.Time     // it is not asked until then; zero: it may be asked
	last   time.Duration // how long the last snub lasted; 0: a block has come since
	blocks bool          // blocks have come since requests were taken back the last time
}

// takesBack notes that requests were taken back. others tells whether other connections can be
// asked.
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

// over ends the snub if its time is over, or if no other connection can be asked.
func (s snub) over(others bool, now time.Time) snub {
	if !others || !now.Before(s.until) {
		s.until = time.Time{}
	}
	return s
}

func newWaiting() waiting { return waiting{gap: firstGap} }

// asks notes one more request; before is the number of earlier ones that are outstanding.
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

// comes notes that a part of a message has come. block tells whether the message has a block, and
// more whether its end is still to come.
func (w waiting) comes(block, more bool, now time.Time) waiting {
	if block {
		w.since = now
	}
	switch {
	case !more:
		w.begun = time.Time{}
	case w.begun.IsZero():
		w.begun = now
	}
	return w
}

// endless tells whether a message has been coming for too long.
func (w waiting) endless(now time.Time) bool {
	return !w.begun.IsZero() && now.Sub(w.begun) >= messagePatience
}

// Situation is what TakeBack needs to know of the other connections.
type Situation struct {
	Others bool // other connections can be asked
	Idle   bool // one of them has no requests
	RTT    time.Duration
	Now    time.Time
}

// over tells whether the requests have waited for too long; asked is their number. The only request
// of a connection is taken back as soon as one in strayParts if another connection is idle.
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

// CanAsk tells whether the engine may ask the peer and wants to, and whether requests are
// outstanding.
func (f *Filter) CanAsk() (can, asked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.openLocked() && f.engineInterested, len(f.requested) > 0
}

// suggestion makes the engine look for blocks to request.
var suggestion = binary.BigEndian.AppendUint32([]byte{0, 0, 0, 5, msgSuggest}, 0)

// Nudge makes the engine look for blocks to request, if none are requested.
func (f *Filter) Nudge() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.engineUnchoked && len(f.forEngine) == 0 && len(f.requested) == 0 {
		f.nudgeLocked()
	}
}

func (f *Filter) nudgeLocked() {
	switch {
	case !f.handshakes.in || !f.handshakes.out || f.closed:
	case !f.noRejects:
		f.toEngineLocked(suggestion)
	case f.engineUnchoked:
		f.toEngineLocked(plain(msgChoke))
		f.toEngineLocked(plain(msgUnchoke))
	}
}

// TakeBack takes back all requests if the peer has been silent for too long. The engine then asks
// again: this peer for other blocks, or other peers for these. It tells whether it did so, and
// whether the engine does not ask this peer for a while.
func (f *Filter) TakeBack(a Situation) (taken, snubbed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.wait.over(len(f.requested), a) || f.closed {
		return false, false
	}
	before := f.snub
	f.snub = before.takesBack(a.Others, a.Now)
	snubbed = f.snub.until != before.until
	f.takeBackLocked()
	return true, snubbed
}

// takeBackLocked has the engine forget all requests, and the peer, too.
func (f *Filter) takeBackLocked() {
	blocks := slices.Collect(maps.Keys(f.requested))
	clear(f.requested)
	if f.updateEngineLocked(); f.engineUnchoked {
		f.nudgeLocked() // before the rejects: a reject does not make the engine look
	}
	f.toPeerLocked(encode(msgCancel, blocks...))
	if f.noRejects {
		return // the choke has made the engine forget them, and it still takes their blocks
	}
	f.toEngineLocked(encode(msgReject, blocks...))
	for _, b := range blocks {
		if n := f.late[b]; n > 0 && n < math.MaxUint8 || n == 0 && len(f.late) < maxLate {
			f.late[b]++
		}
	}
}

// Withdraw takes back the requests for blocks of pieces that are not wanted now, so that the peer
// answers the other requests sooner. The engine learns of it by the peer's rejects, so that blocks
// on their way are still of use. It tells whether there were such requests.
func (f *Filter) Withdraw(wanted func(piece int) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var unwanted []block
	for b := range f.requested {
		if !wanted(int(b.index)) {
			unwanted = append(unwanted, b)
		}
	}
	switch {
	case len(unwanted) == 0 || f.closed || f.parked || f.suspended || len(f.forPeer) >= maxUnsaid:
		return false
	case f.noRejects || f.ignoresCancels:
		f.takeBackLocked() // such a peer would never tell that it has forgotten them
	default:
		f.toPeerLocked(encode(msgCancel, unwanted...))
	}
	return true
}

// Suspend takes all requests back, and keeps every block of the peer from the engine, until Resume.
// In contrast to Park, blocks on their way are dropped, too, and every peer can be suspended.
func (f *Filter) Suspend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.suspended || f.closed {
		return
	}
	f.suspended = true
	f.takeBackLocked()
}

// Resume ends Suspend.
func (f *Filter) Resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.suspended {
		f.suspended = false
		f.updateEngineLocked()
	}
}

// CouldAsk is CanAsk for a peer that may be suspended: it tells whether the engine could ask the
// peer otherwise.
func (f *Filter) CouldAsk() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.willingLocked() && f.engineInterested
}

// EndSnub lets the engine ask a peer that snubs us again, if its time is over or if no other
// connection can be asked.
func (f *Filter) EndSnub(others bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snub = f.snub.over(others, now)
	f.updateEngineLocked()
}

// answeredLocked decides what happens to a block or a reject of the peer.
func (f *Filter) answeredLocked(m message, now time.Time) verdict {
	_, asked := f.requested[m.block]
	block := m.kind == msgPiece
	if block {
		f.wait, f.snub = f.wait.gets(now), f.snub.gets()
		f.updateEngineLocked()
	}
	if late := f.late[m.block]; late > 0 && !(asked && block) {
		// This answer is too late: the engine would end the connection because of it. If two
		// answers are still to come, one to a new request, the engine waits for the one with the
		// block.
		if late == 1 {
			delete(f.late, m.block)
		} else {
			f.late[m.block]--
		}
		return drop
	}
	delete(f.requested, m.block)
	if block && f.suspended {
		return drop
	}
	if block {
		f.progressed = true
		f.suggestLocked()
		return pass
	}
	if asked && f.progressed && len(f.requested) == 0 && f.engineUnchoked {
		// Not if the peer rejects everything: the engine would ask it again as fast as it rejects.
		f.progressed = false
		f.nudgeLocked()
		f.toEngineLocked(encode(msgReject, m.block))
		return drop
	}
	return pass
}

// SetTarget tells the filter how many requests are meant to be outstanding; 0: as many as at first.
func (f *Filter) SetTarget(requests int) { f.target.Store(int64(requests)) }

// suggestLocked has the engine ask for more once enough of a batch is answered.
func (f *Filter) suggestLocked() {
	n := len(f.requested)
	least := FirstRequests / 2
	if target := int(f.target.Load()); target > 0 {
		least = min(least, target)
	}
	// Not if the batch is much smaller than meant: it has the last few requests of a torrent.
	due := n > 0 && f.batch-n >= Part(f.batch) && f.batch >= least
	if due && f.engineUnchoked && !f.noRejects {
		f.batch = n
		f.toEngineLocked(suggestion)
	}
}

// comes notes that a part of a message has come: see waiting.comes.
func (f *Filter) comes(block, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wait = f.wait.comes(block, more, time.Now())
}

// Endless tells whether a message has been coming for too long.
func (f *Filter) Endless(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wait.endless(now)
}
