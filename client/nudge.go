package client

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// What has the engine ask on, where it would ask nobody any more.
//
// The engine asks a peer for more blocks when the last one that it has asked for is there, and not before; never because of a
// reject; and it has no timeouts. One block that a peer forgets, or one reject at the end, and that connection is over, with
// its last requests nobody else's either.
//
//	asked --the last one is rejected---------------------> told of a suggestion, before the reject
//	      --silence, see waiting-> taken back: told of rejects that the peer has not sent
//	idle  --200 ms---------------------------------------> told of a suggestion
//
// A suggestion (BEP 6) means no more to the engine than that it should look. Where the peer does not know that extension, a choke
// and an unchoke do the same and take back all requests, too.
//
// An idle connection takes a block that another one has asked for, if that one has more to ask for. The engine moves the request
// and cancels the one before. But what has been sent is not called back by a cancel, and arrives twice: where
// pieces are scarce, as in a swarm that waits for its seed, as much as there is of use. So a request is left alone for the time in
// which it would be answered at most distances.

const (
	// stealGrace is how long a request is left alone: a round trip from one continent to another, and a block's time on the link.
	stealGrace = 300 * time.Millisecond
	// nudgedMost bounds what it costs to look again: each time all missing pieces are gone over.
	nudgedMost = 8
	// maxLate is how many answers to requests that were taken back are expected. Those beyond it end the connection if they come.
	maxLate = 4096
)

// waiting is what a connection waits for.
type waiting struct {
	most  int           // requests at a time since the last time that there were none
	since time.Time     // when a byte of a block came last, or the first request was made
	gap   time.Duration // the longest time between two blocks, lately
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
	// gapMemory is how many blocks it takes to forget most of a gap.
	gapMemory = 32
)

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
	w.since = now
	return w
}

// over tells whether so many requests have waited for too long.
func (w waiting) over(asked int, rtt time.Duration, now time.Time) bool {
	if asked == 0 {
		return false
	}
	least := max(silencePatience, silenceGaps*w.gap)
	if strayParts*asked <= w.most {
		least = max(strayPatience, strayGaps*w.gap)
	}
	return now.Sub(w.since) >= max(least, silenceTrips*rtt)
}

// nudge takes back requests that have waited for too long, and has the engine think again of connections that have nothing to ask
// for.
func (t *Transfer) nudge() {
	if t.isDone || t.want == nil {
		return
	}
	var idle []*link
	busy := false
	now := time.Now()
	for x := range t.greetedRows() {
		g := t.session.gauges.find(x.link.face)
		if g == nil {
			continue
		}
		if x.link.gate.takeBack(x.link.Measure().RTT, now) {
			t.log.Debug("requests taken back: the peer does not answer", "peer", x.peer, "path", x.link.Path().Fingerprint.Short())
		}
		switch {
		case g.outstanding.Load() > 0:
			busy = true
		case g.unchoked.Load():
			idle = append(idle, x.link)
		}
	}
	rand.Shuffle(len(idle), func(i, j int) { idle[i], idle[j] = idle[j], idle[i] })
	most := 1 // it may be that no peer has what is missing
	if busy {
		most = nudgedMost
	}
	for _, l := range idle[:min(len(idle), most)] {
		l.gate.nudge()
	}
}

// suggestion has the engine look for something to ask the peer for.
var suggestion = binary.BigEndian.AppendUint32([]byte{0, 0, 0, 5, msgSuggest}, 0)

// nudge has the engine look for something to ask this peer for.
func (g *gate) nudge() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shown && len(g.forEngine) == 0 && len(g.asked) == 0 {
		g.nudgeLocked()
	}
}

func (g *gate) nudgeLocked() {
	switch {
	case !g.known.in || !g.known.out || g.closed:
	case !g.slow:
		g.giveLocked(suggestion)
	case g.shown:
		g.giveLocked(plain(msgChoke))
		g.giveLocked(plain(msgUnchoke))
	}
}

// takeBack takes back all requests if the peer has been silent for too long, and has the engine ask anew, the peer for other blocks
// or others for these. It tells whether it did.
func (g *gate) takeBack(rtt time.Duration, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.wait.over(len(g.asked), rtt, now) || g.closed {
		return false
	}
	blocks := blocksOf(g.asked)
	clear(g.asked)
	g.nudgeLocked() // first: after a reject the engine does not look
	g.tellLocked(encode(msgCancel, blocks...))
	if g.slow {
		return true // the engine has forgotten them, and takes them still
	}
	g.giveLocked(encode(msgReject, blocks...))
	for _, b := range blocks {
		if len(g.late) < maxLate || g.late[b] > 0 {
			g.late[b]++
		}
	}
	return true
}

// answeredLocked looks at a block or reject of the peer, and tells what becomes of it.
func (g *gate) answeredLocked(m message, now time.Time) verdict {
	_, asked := g.asked[m.block]
	block := m.kind == msgPiece
	if block {
		g.wait = g.wait.gets(now)
	}
	if late := g.late[m.block]; late > 0 && !(asked && block) {
		// An answer that was given up. The engine would end the connection because of it. Of two answers to two requests the
		// block is the one that the engine waits for.
		if late == 1 {
			delete(g.late, m.block)
		} else {
			g.late[m.block]--
		}
		return drop
	}
	delete(g.asked, m.block)
	if block {
		g.moved = true
		return pass
	}
	if asked && g.moved && len(g.asked) == 0 && g.shown {
		// Not if the peer rejects everything: it would be asked again and again, as fast as it rejects.
		g.moved = false
		g.nudgeLocked()
		g.giveLocked(encode(msgReject, m.block))
		return drop
	}
	return pass
}

// stillComing notes that a block goes on.
func (g *gate) stillComing() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wait.since = time.Now()
}
