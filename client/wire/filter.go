package wire

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
type Filter struct {
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
	disk       Disk               // nil: it has nothing
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
	untold     Bitset   // pieces to tell of in portions, as the peer reads; nil: none
	untoldAt   int      // none of them is below it
}

// portion is how many pieces a peer is told of at a time, if it is to be told of many. All at once would take nine bytes for each
// piece and each peer, in memory.
const portion = 1024

func newFilter(wire net.Conn) *Filter {
	f := &Filter{
		wire: wire, onPeer: func() {}, stir: make(chan struct{}, 1),
		asked: map[block]struct{}{}, late: map[block]uint8{}, serving: map[block]struct{}{},
		wait: newWaiting(),
	}
	f.keepIn, f.keepOut = f.arrived, f.departs
	f.out.whole = true
	return f
}

// park stops asking the peer for blocks, until unpark. It tells whether the gate can: not on a connection whose peer does not
// know of rejects.
func (f *Filter) Park() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.works() {
		return false
	}
	if f.parked {
		return true
	}
	f.parked = true
	f.showLocked()
	f.tellLocked(encode(msgCancel, blocksOf(f.asked)...))
	return true
}

func (f *Filter) Unpark() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parked = false
	f.showLocked()
}

// bar stops serving the peer, until unbar. It tells whether the gate can, see park.
func (f *Filter) Bar() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.works() {
		return false
	}
	if f.barred {
		return true
	}
	f.barred = true
	if f.told {
		f.told = false
		f.tellLocked(plain(msgChoke))
	}
	f.giveLocked(encode(msgCancel, blocksOf(f.serving)...))
	return true
}

func (f *Filter) Unbar() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.barred = false
	if f.meant && !f.told {
		f.told = true
		f.tellLocked(plain(msgUnchoke))
	}
}

// conceal has the peer believe that we have no pieces but those that reveal tells it of. It must be called before the engine
// says what we have.
func (f *Filter) Conceal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.concealing = true
}

// conceals tells whether it does.
func (f *Filter) Conceals() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.concealing
}

// reveal tells the peer that we have these pieces.
func (f *Filter) Reveal(pieces []uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.concealing && !f.presented {
		f.unshown = append(f.unshown, pieces...)
		return
	}
	f.tellLocked(haves(f.newPiecesLocked(pieces...)))
}

// revealAll tells the peer that we have these pieces, which may be many, as fast as it reads. The set is the gate's from now on.
func (f *Filter) RevealAll(pieces Bitset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(pieces) == 0 {
		return
	}
	for w, word := range f.untold {
		pieces[w] |= word
	}
	f.untold, f.untoldAt = pieces, 0
	f.goOnLocked()
}

// portionLocked returns the next of the messages that tell of untold pieces.
func (f *Filter) portionLocked() []byte {
	if f.concealing && !f.presented {
		return nil
	}
	var pieces []uint32
	for len(pieces) < portion && f.untold != nil {
		i := f.untold.Next(f.untoldAt, nil)
		if i < 0 {
			f.untold = nil
			break
		}
		f.untoldAt = i + 1
		pieces = append(pieces, uint32(i))
	}
	return haves(f.newPiecesLocked(pieces...))
}

// wants tells whether the peer is interested in what we have.
func (f *Filter) PeerInterested() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.interested
}

func (f *Filter) works() bool { return f.known.in && f.known.out && !f.slow && !f.closed }

func blocksOf(m map[block]struct{}) []block {
	out := make([]block, 0, len(m))
	for b := range m {
		out = append(out, b)
	}
	return out
}

// openLocked tells whether the engine may ask the peer.
func (f *Filter) openLocked() bool { return f.heard && !f.parked && f.snub.until.IsZero() }

// showLocked has the engine know whether we are choked.
func (f *Filter) showLocked() {
	if open := f.openLocked(); open != f.shown {
		f.shown = open
		kind := byte(msgChoke)
		if open {
			kind = msgUnchoke
		}
		f.giveLocked(plain(kind))
	}
}

// giveLocked lets the engine read messages.
func (f *Filter) giveLocked(b []byte) {
	if len(b) == 0 || f.closed {
		return
	}
	f.forEngine = append(f.forEngine, b...)
	f.wakeLocked()
}

// wakeLocked has the reader look for what the gate itself has to say to the engine.
func (f *Filter) wakeLocked() {
	f.stirLocked()
	if !f.woken && !f.closed {
		f.woken = true
		_ = f.wire.SetReadDeadline(time.Unix(1, 0)) // fails only when closed
	}
}

// stirLocked has a reader that waits look again.
func (f *Filter) stirLocked() {
	select {
	case f.stir <- struct{}{}:
	default:
	}
}

// tellLocked lets the peer read messages. A write may take as long as the peer likes, so another goroutine does it,
// unless the engine writes anyway.
func (f *Filter) tellLocked(b []byte) {
	if len(b) == 0 || f.closed {
		return
	}
	f.forPeer = append(f.forPeer, b...)
	f.goOnLocked()
}

// goOnLocked has somebody write what there is for the peer.
func (f *Filter) goOnLocked() {
	if !f.sending && !f.closed {
		f.sending = true
		go f.send() // ends when the wire is closed at the latest
	}
}

func (f *Filter) send() {
	f.writing.Lock()
	defer f.writing.Unlock()
	f.mu.Lock()
	f.sending = false
	f.mu.Unlock()
	_ = f.writeOurs() // the engine's own next call fails too
}

// writeOurs writes what the gate itself has to say to the peer, at a boundary. Called with writing held.
func (f *Filter) writeOurs() error {
	if len(f.behind) > 0 || f.out.left > 0 {
		return nil // in the middle of a message, whose end is written soon
	}
	f.mu.Lock()
	b := append(f.forPeer, f.portionLocked()...)
	f.forPeer = nil
	more := len(f.untold) > 0 && len(b) > 0
	f.mu.Unlock()
	if err := f.put(b); err != nil || !more {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.goOnLocked() // not here: the engine may have something to write in between
	return nil
}

// Read is the engine's.
func (f *Filter) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		if len(f.ready) > 0 {
			n := copy(b, f.ready)
			f.ready = f.ready[n:]
			return n, nil
		}
		buf := b
		if len(b) < smallest {
			if f.small == nil {
				f.small = make([]byte, smallest)
			}
			buf = f.small
		}
		passed, err := f.pass(buf)
		switch {
		case err != nil:
			return 0, err
		case len(passed) == 0:
		case len(b) < smallest:
			f.ready = append(f.ready, passed...)
		default:
			return len(passed), nil
		}
	}
}

// smallest is the room that it takes to look at messages in place: a handshake or the beginning of an extended message.
const smallest = 128

// pass reads and goes over some bytes, and gives those that pass; there may be none. What the gate itself has to say to
// the engine gets ready at the first boundary.
func (f *Filter) pass(b []byte) ([]byte, error) {
	f.mu.Lock()
	fetch := len(f.fetches) > 0
	stop := len(f.forEngine) > 0 || fetch
	boundary := f.in.begun && f.in.left == 0
	if boundary && len(f.forEngine) > 0 {
		f.ready, f.forEngine = append(f.ready[:0], f.forEngine...), f.forEngine[:0]
		f.mu.Unlock()
		return nil, nil
	}
	f.mu.Unlock()
	switch {
	case boundary && fetch:
		f.ready = f.fetch()
		return nil, nil
	case f.fault != nil:
		return nil, f.fault
	case f.held:
		return nil, f.await()
	}

	n := copy(b, f.ahead)
	rest := f.ahead[n:]
	if n == 0 || f.hungry {
		if f.failed != nil {
			return nil, f.failed
		}
		m, err := f.wire.Read(b[n:])
		n += m
		if err != nil && !f.again(err) {
			f.failed = err
		}
	}
	consumed, drops, stopped := f.in.scan(b[:n], stop, f.keepIn)
	if f.in.begun && !f.known.in {
		hideBits(b)
		f.note(&f.known.in, &f.in)
	}
	if f.in.foreign {
		f.fault = errForeign
	}
	if f.coming && consumed > 0 {
		f.coming = f.inside && f.in.left > 0
		f.comes(f.coming)
	}
	f.hungry = !stopped && len(rest) == 0
	if left := b[consumed:n]; len(rest) == 0 {
		f.ahead = append(f.ahead[:0], left...)
	} else {
		f.ahead = slices.Concat(left, rest)
	}
	return without(b[:consumed], drops), nil
}

// again tells whether reading was only interrupted.
func (f *Filter) again(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.woken || f.closed {
		return false
	}
	f.woken = false
	_ = f.wire.SetReadDeadline(f.deadline)
	return true
}

// await returns when the message that is held may pass, or the engine is to read something before it.
func (f *Filter) await() error {
	for {
		f.mu.Lock()
		free := f.bounds.room() || len(f.forEngine)+len(f.fetches) > 0
		closed, deadline := f.closed, f.deadline
		f.mu.Unlock()
		switch {
		case closed:
			return net.ErrClosed
		case free:
			f.held = false
			return nil
		}
		over, stop := context.Background(), context.CancelFunc(func() {})
		if !deadline.IsZero() {
			over, stop = context.WithDeadline(over, deadline)
		}
		select {
		case <-f.stir:
		case <-over.Done():
			stop()
			return os.ErrDeadlineExceeded
		}
		stop()
	}
}

func (f *Filter) note(known *bool, x *framing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*known = true
	f.slow = f.slow || !x.fast
	f.mute = f.mute || x.old
	f.kin = f.kin || x.ours
}

// arrived looks at a message of the peer, and tells what becomes of it.
func (f *Filter) arrived(m message) verdict {
	f.inside = m.kind == msgPiece && !m.keepAlive
	f.coming = f.coming || f.inside
	if m.keepAlive {
		return pass
	}
	changed := false
	f.mu.Lock()
	defer func() {
		f.mu.Unlock()
		if changed {
			f.onPeer()
		}
	}()
	now := time.Now()
	switch v, err := f.bounds.arrived(m, now); {
	case err != nil:
		f.fault = err
		return refuse
	case v == hold:
		f.held = true
		return hold
	case v != pass:
		return v
	}
	switch m.kind {
	case msgChoke, msgUnchoke:
		f.heard = m.kind == msgUnchoke
		if !f.heard && f.slow {
			clear(f.asked) // as the engine does
		}
		switch {
		case f.shown == f.openLocked():
			return drop
		case len(f.forEngine) > 0: // which comes first
			f.showLocked()
			return drop
		}
		f.shown = f.heard
	case msgInterested, msgNotInterested:
		now := m.kind == msgInterested
		changed, f.interested = now != f.interested, now
	case msgPiece, msgReject:
		return f.answeredLocked(m, now)
	case msgRequest:
		if f.meant && !f.told {
			if len(f.forPeer) < maxUnsaid {
				f.tellLocked(encode(msgReject, m.block))
			}
			return drop
		}
		if f.slow && !f.meant {
			return drop // the engine would not answer
		}
		if len(f.serving) >= maxServing {
			f.fault = errFlood
			return refuse
		}
		f.serving[m.block] = struct{}{}
	case msgCancel:
		if f.slow {
			delete(f.serving, m.block) // without an answer
		}
	}
	return pass
}

// departs looks at a message of the engine, and tells what becomes of it.
func (f *Filter) departs(m message) verdict {
	if m.keepAlive {
		return pass
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch m.kind {
	case msgChoke, msgUnchoke:
		f.meant = m.kind == msgUnchoke
		if !f.meant && f.slow {
			clear(f.serving) // as both sides do
		}
		open := f.meant && !f.barred
		if open == f.told {
			return drop
		}
		f.told = open
		if len(f.forPeer) > 0 { // which comes first
			f.tellLocked(plain(m.kind))
			return drop
		}
	case msgInterested, msgNotInterested:
		f.keen = m.kind == msgInterested
	case msgRequest:
		if f.fetchLocked(m.block) {
			return drop
		}
		f.askLocked(m.block)
		if f.parked || !f.snub.until.IsZero() { // sent before the engine has read of it
			f.tellLocked(encode(msgCancel, m.block))
		}
	case msgCancel:
		if slices.Contains(f.fetches, m.block) {
			return drop // the peer knows of no request; the engine takes the block
		}
		if f.slow || f.mute {
			delete(f.asked, m.block) // the engine does not wait for an answer, but takes one
		}
	case msgPiece, msgReject:
		delete(f.serving, m.block)
	case msgExtended:
		f.bounds = f.bounds.departs(m)
		f.stirLocked()
	case msgBitfield, msgHaveAll, msgHaveNone:
		if !f.concealing {
			f.lastTwo.told = m.pieces
			break
		}
		f.presentLocked()
		// Who knows of the fast extension must be told that there is nothing (BEP 6).
		f.nothing = m.kind != msgHaveNone && !f.slow
		if m.kind != msgHaveNone {
			return drop
		}
	case msgHave:
		if f.concealing {
			f.presentLocked()
			return drop
		}
		if tell := f.newPiecesLocked(m.block.index); len(tell) != 1 {
			f.tellLocked(haves(tell))
			return drop
		}
	}
	return pass
}

// askLocked notes a request that goes to the peer.
func (f *Filter) askLocked(b block) {
	f.wait = f.wait.asks(len(f.asked), time.Now())
	f.asked[b] = struct{}{}
	f.batch = max(f.batch, len(f.asked))
}

// presentLocked notes that the peer is told, now or by silence, that we have nothing, and has it told of what was revealed
// before.
func (f *Filter) presentLocked() {
	if !f.presented {
		f.presented = true
		f.tellLocked(haves(f.newPiecesLocked(f.unshown...)))
		f.unshown = nil
		f.goOnLocked()
	}
}

// Write is the engine's.
func (f *Filter) Write(b []byte) (int, error) {
	f.writing.Lock()
	defer f.writing.Unlock()
	if err := f.writeOurs(); err != nil {
		return 0, err
	}
	all := b
	if len(f.behind) > 0 {
		all = slices.Concat(f.behind, b)
	}
	consumed, drops, _ := f.out.scan(all, false, f.keepOut)
	if f.out.begun && !f.known.out {
		f.note(&f.known.out, &framing{fast: f.out.fast})
	}
	if f.out.foreign {
		return 0, errForeign
	}
	f.behind = append(f.behind[:0], all[consumed:]...)
	from := 0
	for _, d := range drops {
		if err := f.put(all[from:d.from]); err != nil {
			return 0, err
		}
		from = d.to
		if f.nothing { // first of all that is said of pieces
			f.nothing = false
			if err := f.put(plain(msgHaveNone)); err != nil {
				return 0, err
			}
		}
	}
	if err := f.put(all[from:consumed]); err != nil {
		return 0, err
	}
	return len(b), f.writeOurs()
}

func (f *Filter) put(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := f.wire.Write(b)
	return err
}

// SetReadDeadline is the engine's.
func (f *Filter) SetReadDeadline(t time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deadline = t
	f.stirLocked()
	if f.woken || f.closed {
		return nil
	}
	return f.wire.SetReadDeadline(t)
}

// close notes that the wire is closed.
func (f *Filter) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.stirLocked()
}
