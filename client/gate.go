package client

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// gate stands between the engine and a connection and can close either direction of the transfer, by the protocol's own
// means, which the engine does not offer. The connection stays as it is: to open the gate again costs nothing.
//
//	           parked: the engine is told that the peer chokes us, and the peer that it may
//	           forget our requests
//	engine <-------------------------------------------------------- peer
//	engine --------------------------------------------------------> peer
//	           barred: the peer is told that we choke it, and the engine that the peer
//	           has taken its requests back
//
// No request is lost and no block sent twice: each request that is taken back is answered, by the peer that has got our
// cancel, or by our engine that has got the peer's, with a reject or with the block if that was on its way already (BEP 6,
// which both must know). What one side says meanwhile of choking is kept, and told when the gate opens.
//
// A gate also bounds what a peer can make the engine do. The engine keeps an answer to whatever a peer asks, whether it reads
// them or not, and works through everything that it is told, however often: see bounds.go for what passes. A peer whose answers
// are not on their way is not read on, or its connection ends.
//
// A gate is read and written by one goroutine each, which are the engine's.
type gate struct {
	wire            net.Conn
	keepIn, keepOut func(message) verdict

	onPeer func() // the peer has become interested, or no longer is; must not block. Set before use.

	// The reader's.
	in     framing
	ahead  []byte // read from the wire, not yet gone over
	hungry bool   // what is ahead is less than the beginning of a message
	ready  []byte // gone over, to be read by the engine
	small  []byte
	failed error // of the wire; after what is ready and ahead
	fault  error // of the peer; after what is ready
	held   bool  // what is ahead begins with a message that has to wait
	inside bool  // the last message is a block
	coming bool  // a block has begun since the last read, or goes on

	// The writer's, with writing held.
	out    framing
	behind []byte // the beginning of a message
	// nothing: in place of what was dropped the peer is told that we have nothing.
	nothing bool

	writing sync.Mutex // held while the wire is written to; before mu

	mu       sync.Mutex
	deadline time.Time // for reading, as the engine wants it
	woken    bool      // the reader's deadline is over because there is something for it
	closed   bool
	known    struct{ in, out bool } // the handshakes were seen
	slow     bool                   // one of them does not offer rejects
	mute     bool                   // the peer does not answer cancels
	stir     chan struct{}          // something may have changed for a reader that waits; has room for one

	parked     bool
	heard      bool               // the peer has unchoked us
	shown      bool               // the engine knows
	asked      map[block]struct{} // of the peer, as the engine has it
	disk       disk               // nil: it has nothing
	fetches    []block            // the engine is going to read them from disk, in order
	batch      int                // requests outstanding at most since the last suggestion
	wait       waiting            // for what was asked
	late       map[block]uint8    // answers that may still come, to requests that the engine thinks rejected
	moved      bool               // a block has come since the last reject that was the last answer
	snub       snub               // the peer does not answer
	keen       bool               // the engine is interested in the peer
	forEngine  []byte             // messages to be read at the next boundary
	barred     bool
	meant      bool // the engine has unchoked the peer
	told       bool // the peer knows
	serving    map[block]struct{}
	forPeer    []byte // messages to be written at the next boundary
	sending    bool   // somebody is about to write forPeer
	interested bool   // the peer in us
	bounds     bounds

	kin     bool // the peer has the engine that we have
	lastTwo lastTwo

	concealing bool     // what the engine says of its pieces does not pass
	presented  bool     // the peer has been told that we have nothing
	unshown    []uint32 // pieces to tell of then
	untold     bitset   // pieces to tell of in portions, as the peer reads; nil: none
	untoldAt   int      // none of them is below it
}

// portion is how many pieces a peer is told of at a time, if it is to be told of many. All at once would take nine bytes for each
// piece and each peer, in memory.
const portion = 1024

func newGate(wire net.Conn) *gate {
	g := &gate{
		wire: wire, onPeer: func() {}, stir: make(chan struct{}, 1),
		asked: map[block]struct{}{}, late: map[block]uint8{}, serving: map[block]struct{}{},
		wait: newWaiting(),
	}
	g.keepIn, g.keepOut = g.arrived, g.departs
	g.out.whole = true
	return g
}

// park stops asking the peer for blocks, until unpark. It tells whether the gate can: not on a connection whose peer does not
// know of rejects.
func (g *gate) park() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.works() {
		return false
	}
	if g.parked {
		return true
	}
	g.parked = true
	g.showLocked()
	g.tellLocked(encode(msgCancel, blocksOf(g.asked)...))
	return true
}

func (g *gate) unpark() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.parked = false
	g.showLocked()
}

// bar stops serving the peer, until unbar. It tells whether the gate can, see park.
func (g *gate) bar() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.works() {
		return false
	}
	if g.barred {
		return true
	}
	g.barred = true
	if g.told {
		g.told = false
		g.tellLocked(plain(msgChoke))
	}
	g.giveLocked(encode(msgCancel, blocksOf(g.serving)...))
	return true
}

func (g *gate) unbar() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.barred = false
	if g.meant && !g.told {
		g.told = true
		g.tellLocked(plain(msgUnchoke))
	}
}

// conceal has the peer believe that we have no pieces but those that reveal tells it of. It must be called before the engine
// says what we have.
func (g *gate) conceal() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.concealing = true
}

// conceals tells whether it does.
func (g *gate) conceals() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.concealing
}

// reveal tells the peer that we have these pieces.
func (g *gate) reveal(pieces []uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.concealing && !g.presented {
		g.unshown = append(g.unshown, pieces...)
		return
	}
	g.tellLocked(haves(g.newPiecesLocked(pieces...)))
}

// revealAll tells the peer that we have these pieces, which may be many, as fast as it reads. The set is the gate's from now on.
func (g *gate) revealAll(pieces bitset) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(pieces) == 0 {
		return
	}
	for w, word := range g.untold {
		pieces[w] |= word
	}
	g.untold, g.untoldAt = pieces, 0
	g.goOnLocked()
}

// portionLocked returns the next of the messages that tell of untold pieces.
func (g *gate) portionLocked() []byte {
	if g.concealing && !g.presented {
		return nil
	}
	var pieces []uint32
	for len(pieces) < portion && g.untold != nil {
		i := g.untold.from(g.untoldAt, nil)
		if i < 0 {
			g.untold = nil
			break
		}
		g.untoldAt = i + 1
		pieces = append(pieces, uint32(i))
	}
	return haves(g.newPiecesLocked(pieces...))
}

// wants tells whether the peer is interested in what we have.
func (g *gate) wants() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.interested
}

func (g *gate) works() bool { return g.known.in && g.known.out && !g.slow && !g.closed }

func blocksOf(m map[block]struct{}) []block {
	out := make([]block, 0, len(m))
	for b := range m {
		out = append(out, b)
	}
	return out
}

// openLocked tells whether the engine may ask the peer.
func (g *gate) openLocked() bool { return g.heard && !g.parked && g.snub.until.IsZero() }

// showLocked has the engine know whether we are choked.
func (g *gate) showLocked() {
	if open := g.openLocked(); open != g.shown {
		g.shown = open
		kind := byte(msgChoke)
		if open {
			kind = msgUnchoke
		}
		g.giveLocked(plain(kind))
	}
}

// giveLocked lets the engine read messages.
func (g *gate) giveLocked(b []byte) {
	if len(b) == 0 || g.closed {
		return
	}
	g.forEngine = append(g.forEngine, b...)
	g.wakeLocked()
}

// wakeLocked has the reader look for what the gate itself has to say to the engine.
func (g *gate) wakeLocked() {
	g.stirLocked()
	if !g.woken && !g.closed {
		g.woken = true
		_ = g.wire.SetReadDeadline(time.Unix(1, 0)) // fails only when closed
	}
}

// stirLocked has a reader that waits look again.
func (g *gate) stirLocked() {
	select {
	case g.stir <- struct{}{}:
	default:
	}
}

// tellLocked lets the peer read messages. A write may take as long as the peer likes, so another goroutine does it,
// unless the engine writes anyway.
func (g *gate) tellLocked(b []byte) {
	if len(b) == 0 || g.closed {
		return
	}
	g.forPeer = append(g.forPeer, b...)
	g.goOnLocked()
}

// goOnLocked has somebody write what there is for the peer.
func (g *gate) goOnLocked() {
	if !g.sending && !g.closed {
		g.sending = true
		go g.send() // ends when the wire is closed at the latest
	}
}

func (g *gate) send() {
	g.writing.Lock()
	defer g.writing.Unlock()
	g.mu.Lock()
	g.sending = false
	g.mu.Unlock()
	_ = g.writeOurs() // the engine's own next call fails too
}

// writeOurs writes what the gate itself has to say to the peer, at a boundary. Called with writing held.
func (g *gate) writeOurs() error {
	if len(g.behind) > 0 || g.out.left > 0 {
		return nil // in the middle of a message, whose end is written soon
	}
	g.mu.Lock()
	b := append(g.forPeer, g.portionLocked()...)
	g.forPeer = nil
	more := len(g.untold) > 0 && len(b) > 0
	g.mu.Unlock()
	if err := g.put(b); err != nil || !more {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.goOnLocked() // not here: the engine may have something to write in between
	return nil
}

// Read is the engine's.
func (g *gate) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		if len(g.ready) > 0 {
			n := copy(b, g.ready)
			g.ready = g.ready[n:]
			return n, nil
		}
		buf := b
		if len(b) < smallest {
			if g.small == nil {
				g.small = make([]byte, smallest)
			}
			buf = g.small
		}
		passed, err := g.pass(buf)
		switch {
		case err != nil:
			return 0, err
		case len(passed) == 0:
		case len(b) < smallest:
			g.ready = append(g.ready, passed...)
		default:
			return len(passed), nil
		}
	}
}

// smallest is the room that it takes to look at messages in place: a handshake or the beginning of an extended message.
const smallest = 128

// pass reads and goes over some bytes, and gives those that pass; there may be none. What the gate itself has to say to
// the engine gets ready at the first boundary.
func (g *gate) pass(b []byte) ([]byte, error) {
	g.mu.Lock()
	fetch := len(g.fetches) > 0
	stop := len(g.forEngine) > 0 || fetch
	boundary := g.in.begun && g.in.left == 0
	if boundary && len(g.forEngine) > 0 {
		g.ready, g.forEngine = append(g.ready[:0], g.forEngine...), g.forEngine[:0]
		g.mu.Unlock()
		return nil, nil
	}
	g.mu.Unlock()
	switch {
	case boundary && fetch:
		g.ready = g.fetch()
		return nil, nil
	case g.fault != nil:
		return nil, g.fault
	case g.held:
		return nil, g.await()
	}

	n := copy(b, g.ahead)
	rest := g.ahead[n:]
	if n == 0 || g.hungry {
		if g.failed != nil {
			return nil, g.failed
		}
		m, err := g.wire.Read(b[n:])
		n += m
		if err != nil && !g.again(err) {
			g.failed = err
		}
	}
	consumed, drops, stopped := g.in.scan(b[:n], stop, g.keepIn)
	if g.in.begun && !g.known.in {
		hideBits(b)
		g.note(&g.known.in, &g.in)
	}
	if g.in.foreign {
		g.fault = errForeign
	}
	if g.coming && consumed > 0 {
		g.coming = g.inside && g.in.left > 0
		g.comes(g.coming)
	}
	g.hungry = !stopped && len(rest) == 0
	if left := b[consumed:n]; len(rest) == 0 {
		g.ahead = append(g.ahead[:0], left...)
	} else {
		g.ahead = slices.Concat(left, rest)
	}
	return without(b[:consumed], drops), nil
}

// again tells whether reading was only interrupted.
func (g *gate) again(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.woken || g.closed {
		return false
	}
	g.woken = false
	_ = g.wire.SetReadDeadline(g.deadline)
	return true
}

// await returns when the message that is held may pass, or the engine is to read something before it.
func (g *gate) await() error {
	for {
		g.mu.Lock()
		free := g.bounds.room() || len(g.forEngine)+len(g.fetches) > 0
		closed, deadline := g.closed, g.deadline
		g.mu.Unlock()
		switch {
		case closed:
			return net.ErrClosed
		case free:
			g.held = false
			return nil
		}
		over, stop := context.Background(), context.CancelFunc(func() {})
		if !deadline.IsZero() {
			over, stop = context.WithDeadline(over, deadline)
		}
		select {
		case <-g.stir:
		case <-over.Done():
			stop()
			return os.ErrDeadlineExceeded
		}
		stop()
	}
}

func (g *gate) note(known *bool, f *framing) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*known = true
	g.slow = g.slow || !f.fast
	g.mute = g.mute || f.old
	g.kin = g.kin || f.ours
}

// arrived looks at a message of the peer, and tells what becomes of it.
func (g *gate) arrived(m message) verdict {
	g.inside = m.kind == msgPiece && !m.keepAlive
	g.coming = g.coming || g.inside
	if m.keepAlive {
		return pass
	}
	changed := false
	g.mu.Lock()
	defer func() {
		g.mu.Unlock()
		if changed {
			g.onPeer()
		}
	}()
	now := time.Now()
	switch v, err := g.bounds.arrived(m, now); {
	case err != nil:
		g.fault = err
		return refuse
	case v == hold:
		g.held = true
		return hold
	case v != pass:
		return v
	}
	switch m.kind {
	case msgChoke, msgUnchoke:
		g.heard = m.kind == msgUnchoke
		if !g.heard && g.slow {
			clear(g.asked) // as the engine does
		}
		switch {
		case g.shown == g.openLocked():
			return drop
		case len(g.forEngine) > 0: // which comes first
			g.showLocked()
			return drop
		}
		g.shown = g.heard
	case msgInterested, msgNotInterested:
		now := m.kind == msgInterested
		changed, g.interested = now != g.interested, now
	case msgPiece, msgReject:
		return g.answeredLocked(m, now)
	case msgRequest:
		if g.meant && !g.told {
			if len(g.forPeer) < maxUnsaid {
				g.tellLocked(encode(msgReject, m.block))
			}
			return drop
		}
		if g.slow && !g.meant {
			return drop // the engine would not answer
		}
		if len(g.serving) >= maxServing {
			g.fault = errFlood
			return refuse
		}
		g.serving[m.block] = struct{}{}
	case msgCancel:
		if g.slow {
			delete(g.serving, m.block) // without an answer
		}
	}
	return pass
}

// departs looks at a message of the engine, and tells what becomes of it.
func (g *gate) departs(m message) verdict {
	if m.keepAlive {
		return pass
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch m.kind {
	case msgChoke, msgUnchoke:
		g.meant = m.kind == msgUnchoke
		if !g.meant && g.slow {
			clear(g.serving) // as both sides do
		}
		open := g.meant && !g.barred
		if open == g.told {
			return drop
		}
		g.told = open
		if len(g.forPeer) > 0 { // which comes first
			g.tellLocked(plain(m.kind))
			return drop
		}
	case msgInterested, msgNotInterested:
		g.keen = m.kind == msgInterested
	case msgRequest:
		if g.fetchLocked(m.block) {
			return drop
		}
		g.askLocked(m.block)
		if g.parked || !g.snub.until.IsZero() { // sent before the engine has read of it
			g.tellLocked(encode(msgCancel, m.block))
		}
	case msgCancel:
		if slices.Contains(g.fetches, m.block) {
			return drop // the peer knows of no request; the engine takes the block
		}
		if g.slow || g.mute {
			delete(g.asked, m.block) // the engine does not wait for an answer, but takes one
		}
	case msgPiece, msgReject:
		delete(g.serving, m.block)
	case msgExtended:
		g.bounds = g.bounds.departs(m)
		g.stirLocked()
	case msgBitfield, msgHaveAll, msgHaveNone:
		if !g.concealing {
			g.lastTwo.told = m.pieces
			break
		}
		g.presentLocked()
		// Who knows of the fast extension must be told that there is nothing (BEP 6).
		g.nothing = m.kind != msgHaveNone && !g.slow
		if m.kind != msgHaveNone {
			return drop
		}
	case msgHave:
		if g.concealing {
			g.presentLocked()
			return drop
		}
		if tell := g.newPiecesLocked(m.block.index); len(tell) != 1 {
			g.tellLocked(haves(tell))
			return drop
		}
	}
	return pass
}

// askLocked notes a request that goes to the peer.
func (g *gate) askLocked(b block) {
	g.wait = g.wait.asks(len(g.asked), time.Now())
	g.asked[b] = struct{}{}
	g.batch = max(g.batch, len(g.asked))
}

// presentLocked notes that the peer is told, now or by silence, that we have nothing, and has it told of what was revealed
// before.
func (g *gate) presentLocked() {
	if !g.presented {
		g.presented = true
		g.tellLocked(haves(g.newPiecesLocked(g.unshown...)))
		g.unshown = nil
		g.goOnLocked()
	}
}

// Write is the engine's.
func (g *gate) Write(b []byte) (int, error) {
	g.writing.Lock()
	defer g.writing.Unlock()
	if err := g.writeOurs(); err != nil {
		return 0, err
	}
	all := b
	if len(g.behind) > 0 {
		all = slices.Concat(g.behind, b)
	}
	consumed, drops, _ := g.out.scan(all, false, g.keepOut)
	if g.out.begun && !g.known.out {
		g.note(&g.known.out, &framing{fast: g.out.fast})
	}
	if g.out.foreign {
		return 0, errForeign
	}
	g.behind = append(g.behind[:0], all[consumed:]...)
	from := 0
	for _, d := range drops {
		if err := g.put(all[from:d.from]); err != nil {
			return 0, err
		}
		from = d.to
		if g.nothing { // first of all that is said of pieces
			g.nothing = false
			if err := g.put(plain(msgHaveNone)); err != nil {
				return 0, err
			}
		}
	}
	if err := g.put(all[from:consumed]); err != nil {
		return 0, err
	}
	return len(b), g.writeOurs()
}

func (g *gate) put(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := g.wire.Write(b)
	return err
}

// SetReadDeadline is the engine's.
func (g *gate) SetReadDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.deadline = t
	g.stirLocked()
	if g.woken || g.closed {
		return nil
	}
	return g.wire.SetReadDeadline(t)
}

// close notes that the wire is closed.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.stirLocked()
}
