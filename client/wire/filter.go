package wire

import (
	"bufio"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Filter reads every message between the engine and a peer. It can stop the blocks in either
// direction by messages of the protocol, which the engine itself cannot do. The connection stays
// open, and blocks can flow again at no cost.
//
//	           Park: the engine reads a choke that the peer has not sent, and the peer gets cancels
//	           for our requests
//	engine <-------------------------------------------------------- peer
//	engine --------------------------------------------------------> peer
//	           Bar: the peer reads a choke that the engine has not sent, and the engine gets cancels
//	           for the peer's requests
//
// No request is lost and no block is sent twice. Both the peer and our engine answer a canceled
// request with a reject, or with the block if that is on its way already (BEP 6, which both must
// support). Meanwhile the filter remembers the last choke or unchoke of either side, and passes it
// on after Unpark or Unbar.
//
// A filter also bounds how much work and memory a peer can cost the engine: see bounds.go.
//
// The engine reads a filter with one goroutine and writes it with another.
type Filter struct {
	wire            net.Conn
	keepIn, keepOut func(message) verdict

	// onInterest is called when the peer has become interested, or is no longer. It must not block.
	onInterest func()

	// For the goroutine that reads:
	in          framing
	buffered    []byte // read from the wire, not yet filtered
	needsMore   bool   // buffered is less than the beginning of a message
	ready       []byte // messages of the filter, for the engine's next Read
	reader      *bufio.Reader
	failed      error // the wire's error; Read returns it after ready and buffered
	fault       error // what the peer has done wrong; Read returns it after ready
	held        bool  // buffered begins with a message that has to wait
	inBlock     bool  // the last message is a block
	blockComing bool  // a block has begun since the last read, or goes on

	// For the goroutine that writes, which has its turn in writing:
	out        framing
	unfinished []byte // the beginning of a message
	instead    []byte // messages for the peer in place of the next dropped one

	writing turns // taken while the wire is written; before mu

	mu             sync.Mutex
	deadline       time.Time // for reading, as the engine has set it
	woken          bool      // the read was interrupted, because there is something for the engine
	closed         bool
	handshakes     struct{ in, out bool } // of the peer and of the engine: seen
	noRejects      bool                   // one handshake does not offer the fast extension (BEP 6)
	ignoresCancels bool                   // the peer does not answer cancels
	changed        chan struct{}          // wakes a reader that waits; has room for one

	// Our requests:
	parked           bool
	suspended        bool               // see Suspend
	peerUnchoked     bool               // the peer has unchoked us
	engineUnchoked   bool               // the engine has been told so
	requested        map[block]struct{} // the engine waits for their answers
	disk             Disk               // nil: it has no blocks
	fetches          []block            // the engine gets these from disk, in order
	batch            int                // the most requests outstanding since the last suggestion
	target           atomic.Int64       // see SetTarget
	wait             waiting            // for the answers
	late             map[block]uint8    // answers that may still come to withdrawn requests
	progressed       bool               // a block has come since the last request was rejected
	snub             snub
	engineInterested bool   // in the peer
	forEngine        []byte // messages to be read at the next boundary

	// The peer's requests:
	barred         bool
	engineServes   bool // the engine has unchoked the peer
	serves         bool // the peer has been told so
	serving        queue
	peerInterested bool   // in us
	forPeer        []byte // messages to be written at the next boundary
	sending        bool   // a goroutine is about to write forPeer
	bounds         bounds

	// Our pieces:
	sameEngine      bool // the peer uses the engine that braid uses
	lastTwo         lastTwo
	concealing      bool   // the peer does not see what the engine says of its pieces
	announced       bool   // the peer has been told that we have nothing
	unannounced     Bitset // pieces to tell of in portions, as the peer reads; nil: none
	unannouncedFrom int    // none of them is below it
}

func newFilter(wire net.Conn) *Filter {
	f := &Filter{
		wire: wire, onInterest: func() {}, changed: make(chan struct{}, 1),
		writing: make(turns, 1), requested: map[block]struct{}{}, late: map[block]uint8{}, serving: newQueue(),
		wait: newWaiting(),
	}
	f.keepIn, f.keepOut = f.arrived, f.departs
	f.reader = bufio.NewReaderSize(passing{f}, leastBuffer)
	f.out.whole = true
	return f
}

// Park stops asking the peer for blocks, until Unpark. It returns false and does nothing if the
// peer does not support rejects.
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
	if f.ignoresCancels { // otherwise the engine would wait for answers that do not come
		f.takeBackLocked()
		return true
	}
	f.updateEngineLocked()
	f.toPeerLocked(encode(msgCancel, slices.Collect(maps.Keys(f.requested))...))
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
	f.rejectWaitingLocked()
	f.toEngineLocked(encode(msgCancel, f.serving.given()...))
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

// PeerInterested tells whether the peer is interested in our pieces.
func (f *Filter) PeerInterested() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peerInterested
}

// Interested tells whether the engine is interested in the peer's pieces.
func (f *Filter) Interested() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.engineInterested
}

// works tells whether Park and Bar are possible.
func (f *Filter) works() bool {
	return f.handshakes.in && f.handshakes.out && !f.noRejects && !f.closed
}

// openLocked tells whether the engine may ask the peer.
func (f *Filter) openLocked() bool { return f.willingLocked() && !f.suspended }

// willingLocked tells whether the engine might ask the peer if the peer were not suspended.
func (f *Filter) willingLocked() bool { return f.peerUnchoked && !f.restsLocked() }

// restsLocked tells whether the peer is parked or snubs us.
func (f *Filter) restsLocked() bool { return f.parked || !f.snub.until.IsZero() }

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
	f.wait.begun = time.Time{} // the previous message is complete
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
		return f.asksLocked(m.block)
	case msgCancel:
		return f.cancelsLocked(m.block)
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
		switch {
		case !f.engineServes && f.noRejects:
			f.serving.clear() // as both sides do
		case !f.engineServes:
			f.rejectWaitingLocked() // the engine rejects the others
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
		if f.fetchLocked(m.block) || f.withholdLocked(m.block) {
			return drop
		}
		f.askLocked(m.block)
		if f.restsLocked() { // sent before the engine has read the choke
			f.toPeerLocked(encode(msgCancel, m.block))
		}
	case msgCancel:
		if slices.Contains(f.fetches, m.block) {
			return drop // the peer never got the request; the engine still accepts the block
		}
		if f.noRejects || f.ignoresCancels {
			delete(f.requested, m.block) // the engine does not wait for an answer, but accepts one
		}
	case msgPiece, msgReject:
		f.serving.ends(m.block)
		f.serving.answers(time.Now())
		f.feedLocked()
	case msgExtended:
		f.bounds = f.bounds.departs(m)
		f.signalLocked()
		if x, changed := withoutYourIP(m.greeting); changed {
			f.instead = append(f.instead, x...)
			return drop
		}
	case msgBitfield, msgHaveAll, msgHaveNone:
		return f.departsPiecesLocked(m)
	case msgHave:
		return f.departsHaveLocked(int(m.block.index))
	}
	return pass
}

// withholdLocked keeps a request from a peer that must not get it, and takes it back: the engine
// has sent it before it has read a choke. It returns false for other requests.
func (f *Filter) withholdLocked(b block) bool {
	if f.noRejects {
		return !f.openLocked() // the choke takes it back
	}
	withheld := f.suspended || f.ignoresCancels && f.restsLocked()
	if withheld {
		f.toEngineLocked(encode(msgReject, b))
	}
	return withheld
}

// askLocked notes a request that goes to the peer.
func (f *Filter) askLocked(b block) {
	f.wait = f.wait.asks(len(f.requested), time.Now())
	f.requested[b] = struct{}{}
	f.batch = max(f.batch, len(f.requested))
}
