package client

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"
)

// What has the engine ask on, where it would ask nobody any more.
//
// By itself the engine asks a peer for more blocks when the last one that it has asked for is there, and not before; never because
// of a reject; and it has no timeouts. One block that a peer forgets, or one reject at the end, and that connection is over, with
// its last requests nobody else's either.
//
//	asked --half of them are there-----------------------> told of a suggestion, see pipeline
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
	// stealGrace is how long a request is left alone: a round trip from one continent to another, and a block's time on the link.
	stealGrace = 300 * time.Millisecond
	// nudgedMost and nudgedPieces bound what it costs to look again: each time all missing pieces are gone over.
	nudgedMost, nudgedPieces = 8, 100_000
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

// around is what a connection's requests are looked at with.
type around struct {
	others bool // other connections can be asked
	idle   bool // and one of them is not
	rtt    time.Duration
	now    time.Time
}

// over tells whether so many requests have waited for too long. A connection's only request is left over where another is idle.
func (w waiting) over(asked int, a around) bool {
	if asked == 0 {
		return false
	}
	least := max(silencePatience, silenceGaps*w.gap)
	if strayParts*asked <= w.most || asked == 1 && a.idle {
		least = max(strayPatience, strayGaps*w.gap)
	}
	return a.now.Sub(w.since) >= max(least, silenceTrips*a.rtt)
}

// nudge takes back requests that have waited for too long, and has the engine think again of connections that have nothing to ask
// for.
func (t *Transfer) nudge() {
	if t.isDone || t.want == nil {
		return
	}
	var links []*link
	open, free := 0, 0 // connections that can be asked, and those of them that are not
	for x := range t.greetedRows() {
		links = append(links, x.link)
		if can, asked := x.link.gate.canAsk(); can {
			open++
			if !asked {
				free++
			}
		}
	}
	var idle []*link
	busy := false
	now := time.Now()
	for _, l := range links {
		g := t.session.gauges.find(l.face)
		if g == nil {
			continue
		}
		if free > 0 && l.gate.endless(now) {
			t.log.Debug("connection ended: a block takes too long", "peer", l.Peer(), "path", l.Path().Fingerprint.Short())
			l.Close()
			continue
		}
		l.gate.endSnub(open > 0, now)
		taken, snubbed := l.gate.takeBack(around{others: open > 1, idle: free > 0, rtt: l.Measure().RTT, now: now})
		if taken {
			t.log.Debug("requests taken back: the peer does not answer", "peer", l.Peer(), "path", l.Path().Fingerprint.Short(), "snubbed", snubbed)
		}
		if snubbed {
			open--
		}
		can, _ := l.gate.canAsk()
		switch {
		case g.outstanding.Load() > 0:
			busy = true
		case can:
			idle = append(idle, l)
		}
	}
	if len(idle) == 0 {
		return
	}
	rand.Shuffle(len(idle), func(i, j int) { idle[i], idle[j] = idle[j], idle[i] })
	most := 1 // it may be that no peer has what is missing
	if busy {
		missing := t.torrent.NumPieces() - t.torrent.Stats().PiecesComplete
		most = min(nudgedMost, 1+nudgedPieces/max(1, missing))
	}
	for _, l := range idle[:min(len(idle), most)] {
		l.gate.nudge()
	}
}

// canAsk tells whether the engine may ask the peer and has a reason to, and whether it does.
func (g *gate) canAsk() (can, asked bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.openLocked() && g.keen, len(g.asked) > 0
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
// or others for these. It tells whether it did, and whether the engine does not ask this peer any more.
func (g *gate) takeBack(a around) (taken, snubbed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.wait.over(len(g.asked), a) || g.closed {
		return false, false
	}
	before := g.snub
	g.snub = before.takesBack(a.others, a.now)
	snubbed = g.snub.until != before.until
	blocks := blocksOf(g.asked)
	clear(g.asked)
	if g.showLocked(); g.shown {
		g.nudgeLocked() // first: after a reject the engine does not look
	}
	g.tellLocked(encode(msgCancel, blocks...))
	if g.slow {
		return true, snubbed // the engine has forgotten them, and takes them still
	}
	g.giveLocked(encode(msgReject, blocks...))
	for _, b := range blocks {
		if n := g.late[b]; n > 0 && n < math.MaxUint8 || n == 0 && len(g.late) < maxLate {
			g.late[b]++
		}
	}
	return true, snubbed
}

// endSnub has the engine ask the peer again if it is time, or if there are no others to ask.
func (g *gate) endSnub(others bool, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.snub = g.snub.over(others, now)
	g.showLocked()
}

// answeredLocked looks at a block or reject of the peer, and tells what becomes of it.
func (g *gate) answeredLocked(m message, now time.Time) verdict {
	_, asked := g.asked[m.block]
	block := m.kind == msgPiece
	if block {
		g.wait, g.snub = g.wait.gets(now), g.snub.gets()
		g.showLocked()
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
		// Once for each batch. A few requests at the end of a torrent need no look.
		if n := len(g.asked); n > 0 && 2*n <= g.batch && g.batch >= firstRequests/2 && g.shown && !g.slow {
			g.batch = n
			g.giveLocked(suggestion)
		}
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

// comes notes that more of a block has come, and whether there is more to come.
func (g *gate) comes(more bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wait = g.wait.comes(more, time.Now())
}

func (g *gate) endless(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wait.endless(now)
}
