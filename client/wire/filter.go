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

// Filter reads every message between the engine and a peer, and can close either direction of the
// transfer by means of the protocol, which the engine does not offer. The connection stays as it is:
// opening it again costs nothing.
//
//	           Park: the engine reads a choke that the peer has not sent, and the peer gets cancels
//	           for our requests
//	engine <-------------------------------------------------------- peer
//	engine --------------------------------------------------------> peer
//	           Bar: the peer reads a choke that the engine has not sent, and the engine gets cancels
//	           for the peer's requests
//
// No request is lost and no block is sent twice. Whoever gets a cancel, the peer or our engine,
// answers each request with a reject, or with the block if that is on its way already (BEP 6, which
// both must support). The filter remembers chokes and unchokes of either side meanwhile, and passes
// on the last one when it opens.
//
// A filter also bounds how much work and memory a peer can cost the engine. The engine keeps an
// answer to everything that a peer asks, even if the peer does not read them, and it works through
// everything that a peer says, however often: see bounds.go. While too many answers wait for a
// peer, the filter reads no more from it, or ends the connection.
//
// The engine reads a filter with one goroutine and writes it with another.
type Filter struct {
	wire            net.Conn
	keepIn, keepOut func(message) verdict

	onInterest func() // the peer is interested now, or no longer; must not block. Set before use.

	// The reader's:
	in          framing
	buffered    []byte // read from the wire, not yet filtered
	needsMore   bool   // buffered is less than the beginning of a message
	ready       []byte // filtered, to be read by the engine
	small       []byte
	failed      error // of the wire; after ready and buffered
	fault       error // of the peer; after ready
	held        bool  // buffered begins with a message that has to wait
	inBlock     bool  // the last message is a block
	blockComing bool  // a block has begun since the last read, or goes on

	// The writer's, with writing held:
	out         framing
	unfinished  []byte // the beginning of a message
	sayHaveNone bool   // tell the peer that we have nothing, in place of the dropped message

	writing sync.Mutex // held while the wire is written; before mu

	mu             sync.Mutex
	deadline       time.Time // for reading, as the engine has set it
	woken          bool      // the reader's deadline is over because there is something for the engine
	closed         bool
	handshakes     struct{ in, out bool } // seen
	noRejects      bool                   // one of them does not offer the fast extension (BEP 6)
	ignoresCancels bool                   // the peer does not answer cancels
	changed        chan struct{}          // wakes a reader that waits; has room for one

	// Our requests:
	parked           bool
	peerUnchoked     bool               // the peer has unchoked us
	engineUnchoked   bool               // the engine has been told so
	requested        map[block]struct{} // of the peer, as far as the engine knows
	disk             Disk               // nil: it has no blocks
	fetches          []block            // the engine is going to get them from disk, in order
	batch            int                // requests outstanding at most since the last suggestion
	wait             waiting            // for the answers
	late             map[block]uint8    // answers that may still come to requests that were taken back
	progressed       bool               // a block has come since the last request was rejected
	snub             snub               // the peer does not answer
	engineInterested bool               // in the peer
	forEngine        []byte             // messages to be read at the next boundary

	// The peer's requests:
	barred         bool
	engineServes   bool // the engine has unchoked the peer
	serves         bool // the peer has been told so
	serving        map[block]struct{}
	peerInterested bool   // in us
	forPeer        []byte // messages to be written at the next boundary
	sending        bool   // a goroutine is about to write forPeer
	bounds         bounds

	// Our pieces:
	sameEngine      bool // the peer uses the engine that braid uses
	lastTwo         lastTwo
	concealing      bool     // the peer does not see what the engine says of its pieces
	announced       bool     // the peer has been told that we have nothing
	pending         []uint32 // pieces to tell of after that
	unannounced     Bitset   // pieces to tell of in portions, as the peer reads; nil: none
	unannouncedFrom int      // none of them is below it
}

// portion is how many of many pieces a peer is told of at a time. All at once would take nine bytes
// of memory for each piece and each peer.
const portion = 1024

func newFilter(wire net.Conn) *Filter {
	f := &Filter{
		wire: wire, onInterest: func() {}, changed: make(chan struct{}, 1),
		requested: map[block]struct{}{}, late: map[block]uint8{}, serving: map[block]struct{}{},
		wait: newWaiting(),
	}
	f.keepIn, f.keepOut = f.arrived, f.departs
	f.out.whole = true
	return f
}

// Park stops asking the peer for blocks, until Unpark. It returns false and does nothing if the peer
// does not support rejects.
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
	f.updateEngineLocked()
	f.toPeerLocked(encode(msgCancel, blocksOf(f.requested)...))
	return true
}

// Unpark lets the engine ask the peer again.
func (f *Filter) Unpark() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parked = false
	f.updateEngineLocked()
}

// Bar stops serving the peer, until Unbar. Like Park, it returns false if it cannot.
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
	if f.serves {
		f.serves = false
		f.toPeerLocked(plain(msgChoke))
	}
	f.toEngineLocked(encode(msgCancel, blocksOf(f.serving)...))
	return true
}

// Unbar serves the peer again.
func (f *Filter) Unbar() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.barred = false
	if f.engineServes && !f.serves {
		f.serves = true
		f.toPeerLocked(plain(msgUnchoke))
	}
}

// Conceal lets the peer believe that we have only the pieces that Reveal tells it of. It must be
// called before the engine says what we have.
func (f *Filter) Conceal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.concealing = true
}

// Conceals tells whether Conceal was called.
func (f *Filter) Conceals() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.concealing
}

// Reveal tells the peer that we have these pieces.
func (f *Filter) Reveal(pieces []uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.concealing && !f.announced {
		f.pending = append(f.pending, pieces...)
		return
	}
	f.toPeerLocked(haves(f.newPiecesLocked(pieces...)))
}

// RevealAll tells the peer that we have these pieces, which may be many, as fast as the peer reads.
// The set belongs to the filter from now on.
func (f *Filter) RevealAll(pieces Bitset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(pieces) == 0 {
		return
	}
	for w, word := range f.unannounced {
		pieces[w] |= word
	}
	f.unannounced, f.unannouncedFrom = pieces, 0
	f.writeSoonLocked()
}

// portionLocked returns the next messages about pieces that are not announced yet.
func (f *Filter) portionLocked() []byte {
	if f.concealing && !f.announced {
		return nil
	}
	var pieces []uint32
	for len(pieces) < portion && f.unannounced != nil {
		i := f.unannounced.Next(f.unannouncedFrom, nil)
		if i < 0 {
			f.unannounced = nil
			break
		}
		f.unannouncedFrom = i + 1
		pieces = append(pieces, uint32(i))
	}
	return haves(f.newPiecesLocked(pieces...))
}

// PeerInterested tells whether the peer is interested in our pieces.
func (f *Filter) PeerInterested() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peerInterested
}

// works tells whether the filter can close a direction.
func (f *Filter) works() bool {
	return f.handshakes.in && f.handshakes.out && !f.noRejects && !f.closed
}

func blocksOf(m map[block]struct{}) []block {
	out := make([]block, 0, len(m))
	for b := range m {
		out = append(out, b)
	}
	return out
}

// openLocked tells whether the engine may ask the peer.
func (f *Filter) openLocked() bool { return f.peerUnchoked && !f.parked && f.snub.until.IsZero() }

// updateEngineLocked tells the engine whether the peer chokes us, if that has changed.
func (f *Filter) updateEngineLocked() {
	if open := f.openLocked(); open != f.engineUnchoked {
		f.engineUnchoked = open
		kind := byte(msgChoke)
		if open {
			kind = msgUnchoke
		}
		f.toEngineLocked(plain(kind))
	}
}

// toEngineLocked lets the engine read messages that the filter makes.
func (f *Filter) toEngineLocked(b []byte) {
	if len(b) == 0 || f.closed {
		return
	}
	f.forEngine = append(f.forEngine, b...)
	f.wakeLocked()
}

// wakeLocked interrupts the reader, since the filter has a message for the engine.
func (f *Filter) wakeLocked() {
	f.signalLocked()
	if !f.woken && !f.closed {
		f.woken = true
		_ = f.wire.SetReadDeadline(time.Unix(1, 0)) // fails only when closed
	}
}

// signalLocked lets a reader that waits look again.
func (f *Filter) signalLocked() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// toPeerLocked sends messages that the filter makes to the peer. A write may take as long as the peer
// likes, so another goroutine does it, unless the engine writes anyway.
func (f *Filter) toPeerLocked(b []byte) {
	if len(b) == 0 || f.closed {
		return
	}
	f.forPeer = append(f.forPeer, b...)
	f.writeSoonLocked()
}

// writeSoonLocked makes a goroutine write what there is for the peer.
func (f *Filter) writeSoonLocked() {
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

// writeOurs writes the filter's own messages to the peer, at a boundary between messages. Called with
// writing held.
func (f *Filter) writeOurs() error {
	if len(f.unfinished) > 0 || f.out.left > 0 {
		return nil // in the middle of a message, the end of which is written soon
	}
	f.mu.Lock()
	b := append(f.forPeer, f.portionLocked()...)
	f.forPeer = nil
	more := len(f.unannounced) > 0 && len(b) > 0
	f.mu.Unlock()
	if err := f.put(b); err != nil || !more {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writeSoonLocked() // not here: the engine may want to write in between
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

// smallest is the room that is needed to filter messages in place: a handshake, or the beginning of
// an extended message.
const smallest = 128

// pass reads and filters some bytes, and returns those that pass; there may be none. At the first
// boundary between messages it makes the filter's own messages ready for the engine.
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

	n := copy(b, f.buffered)
	rest := f.buffered[n:]
	if n == 0 || f.needsMore {
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
	if f.in.begun && !f.handshakes.in {
		hideBits(b)
		f.note(&f.handshakes.in, &f.in)
	}
	if f.in.foreign {
		f.fault = errForeign
	}
	if f.blockComing && consumed > 0 {
		f.blockComing = f.inBlock && f.in.left > 0
		f.comes(f.blockComing)
	}
	f.needsMore = !stopped && len(rest) == 0
	if left := b[consumed:n]; len(rest) == 0 {
		f.buffered = append(f.buffered[:0], left...)
	} else {
		f.buffered = slices.Concat(left, rest)
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

// await returns when the held message may pass, or when there is a message for the engine before it.
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
		case <-f.changed:
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
	f.noRejects = f.noRejects || !x.fast
	f.ignoresCancels = f.ignoresCancels || x.old
	f.sameEngine = f.sameEngine || x.ours
}

// arrived decides what happens to a message of the peer.
func (f *Filter) arrived(m message) verdict {
	f.inBlock = m.kind == msgPiece && !m.keepAlive
	f.blockComing = f.blockComing || f.inBlock
	if m.keepAlive {
		return pass
	}
	changed := false
	f.mu.Lock()
	defer func() {
		f.mu.Unlock()
		if changed {
			f.onInterest()
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
		f.peerUnchoked = m.kind == msgUnchoke
		if !f.peerUnchoked && f.noRejects {
			clear(f.requested) // as the engine does
		}
		switch {
		case f.engineUnchoked == f.openLocked():
			return drop
		case len(f.forEngine) > 0: // it comes first
			f.updateEngineLocked()
			return drop
		}
		f.engineUnchoked = f.peerUnchoked
	case msgInterested, msgNotInterested:
		now := m.kind == msgInterested
		changed, f.peerInterested = now != f.peerInterested, now
	case msgPiece, msgReject:
		return f.answeredLocked(m, now)
	case msgRequest:
		if f.engineServes && !f.serves {
			if len(f.forPeer) < maxUnsaid {
				f.toPeerLocked(encode(msgReject, m.block))
			}
			return drop
		}
		if f.noRejects && !f.engineServes {
			return drop // the engine would not answer
		}
		if len(f.serving) >= maxServing {
			f.fault = errFlood
			return refuse
		}
		f.serving[m.block] = struct{}{}
	case msgCancel:
		if f.noRejects {
			delete(f.serving, m.block) // without an answer
		}
	}
	return pass
}

// departs decides what happens to a message of the engine.
func (f *Filter) departs(m message) verdict {
	if m.keepAlive {
		return pass
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch m.kind {
	case msgChoke, msgUnchoke:
		f.engineServes = m.kind == msgUnchoke
		if !f.engineServes && f.noRejects {
			clear(f.serving) // as both sides do
		}
		open := f.engineServes && !f.barred
		if open == f.serves {
			return drop
		}
		f.serves = open
		if len(f.forPeer) > 0 { // it comes first
			f.toPeerLocked(plain(m.kind))
			return drop
		}
	case msgInterested, msgNotInterested:
		f.engineInterested = m.kind == msgInterested
	case msgRequest:
		if f.fetchLocked(m.block) {
			return drop
		}
		f.askLocked(m.block)
		if f.parked || !f.snub.until.IsZero() { // sent before the engine has read the choke
			f.toPeerLocked(encode(msgCancel, m.block))
		}
	case msgCancel:
		if slices.Contains(f.fetches, m.block) {
			return drop // the peer has no such request; the engine accepts the block
		}
		if f.noRejects || f.ignoresCancels {
			delete(f.requested, m.block) // the engine does not wait for an answer, but accepts one
		}
	case msgPiece, msgReject:
		delete(f.serving, m.block)
	case msgExtended:
		f.bounds = f.bounds.departs(m)
		f.signalLocked()
	case msgBitfield, msgHaveAll, msgHaveNone:
		if !f.concealing {
			f.lastTwo.told = m.pieces
			break
		}
		f.announceLocked()
		// A peer with the fast extension must be told explicitly that we have nothing (BEP 6).
		f.sayHaveNone = m.kind != msgHaveNone && !f.noRejects
		if m.kind != msgHaveNone {
			return drop
		}
	case msgHave:
		if f.concealing {
			f.announceLocked()
			return drop
		}
		if tell := f.newPiecesLocked(m.block.index); len(tell) != 1 {
			f.toPeerLocked(haves(tell))
			return drop
		}
	}
	return pass
}

// askLocked notes a request that goes to the peer.
func (f *Filter) askLocked(b block) {
	f.wait = f.wait.asks(len(f.requested), time.Now())
	f.requested[b] = struct{}{}
	f.batch = max(f.batch, len(f.requested))
}

// announceLocked notes that the peer is told, now or by silence, that we have nothing. It then
// tells the peer of the pieces that were revealed before.
func (f *Filter) announceLocked() {
	if !f.announced {
		f.announced = true
		f.toPeerLocked(haves(f.newPiecesLocked(f.pending...)))
		f.pending = nil
		f.writeSoonLocked()
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
	if len(f.unfinished) > 0 {
		all = slices.Concat(f.unfinished, b)
	}
	consumed, drops, _ := f.out.scan(all, false, f.keepOut)
	if f.out.begun && !f.handshakes.out {
		f.note(&f.handshakes.out, &framing{fast: f.out.fast})
	}
	if f.out.foreign {
		return 0, errForeign
	}
	f.unfinished = append(f.unfinished[:0], all[consumed:]...)
	from := 0
	for _, d := range drops {
		if err := f.put(all[from:d.from]); err != nil {
			return 0, err
		}
		from = d.to
		if f.sayHaveNone { // before any other message about pieces
			f.sayHaveNone = false
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
	f.signalLocked()
	if f.woken || f.closed {
		return nil
	}
	return f.wire.SetReadDeadline(t)
}

// close wakes all that wait, since the wire is closed.
func (f *Filter) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.signalLocked()
}
