package wire

import (
	"errors"
	"time"
)

// Bounds of the work and memory that one connection can cost the engine.
//
// The engine answers at once, into an unlimited buffer, from which the peer reads. It bounds only
// requests for blocks. So while too many answers to requests for metadata wait for a peer, the
// filter does not read from it. A peer that reads its answers is never held up. A connection ends
// if the peer says something that no peer has a reason to say.

const (
	// maxUnsaid is how many bytes may wait for a peer. Beyond that, its requests are dropped: it does
	// not read, and asks on and on.
	maxUnsaid = 64 << 10
	// maxBlock is the longest block that a peer may ask for, in bytes. All clients ask for 16 KiB.
	// The engine keeps up to three copies of a block until the peer has read it.
	maxBlock = 128 << 10
	// maxAnswers is how many answers to requests for metadata may wait, 16 KiB each. The engine
	// itself can hold twice as many.
	maxAnswers = 4
	// A turn is a choke or an unchoke. At each, the engine goes over its requests. Most clients
	// decide every ten seconds whom they serve; braid decides every second.
	turnsMost  = 60
	turnsEvery = time.Second
	// wholesMost is how often a peer may say that it has all pieces, or none. The engine goes over
	// all pieces each time. BEP 6 allows it once; aria2 repeats it instead of listing many new
	// pieces.
	wholesMost = 4
	// A greeting is an extended handshake, which may be repeated (BEP 10). Each can change the size
	// of the metadata. The engine then allocates up to 16 MiB, and asks all other peers again.
	greetingsMost  = 8
	greetingsEvery = time.Minute
	// A notice is an extended message that needs no answer, such as one of peer exchange, which
	// comes once a minute (BEP 11). More and longer notices do not reach the engine.
	noticesMost  = 6
	noticesEvery = 20 * time.Second
	maxNotice    = 32 << 10
	// metadataExtension is the number that braid gives to the metadata extension (BEP 9). The
	// engine answers no other one.
	metadataExtension = 1
	// MaxMetadata is the largest info dictionary that is fetched, in bytes: 800 000 pieces, or all
	// files that a torrent may have.
	MaxMetadata = 16 << 20
	// maxPieces is how many pieces a torrent can have whose description is not known yet. A peer
	// could name pieces far apart: the engine keeps them in a set that is small only if they are
	// close together.
	maxPieces = MaxMetadata / 20
)

var (
	errForeign = errors.New("not a BitTorrent connection")
	errFlood   = errors.New("the peer asks for more than it reads, or repeats itself without end")
	errPieces  = errors.New("the peer says again and again which pieces it has, " +
		"or speaks of another number of pieces")
	errAnswer = errors.New("the peer sends metadata that nobody has asked for")
	errLength = errors.New("the peer asks for a block that is too long")
)

// bounds are the counts of one connection.
type bounds struct {
	pieces    int    // of the torrent; 0 while it is unknown
	mapped    bool   // the peer has said which pieces it has
	wholes    int    // times that it has said all, or none
	field     uint64 // the bytes of its last bitfield; 0: it has sent none
	answers   int    // to its requests for metadata that wait for the peer
	questions int    // our requests for metadata that wait for an answer
	turns     Allowance
	greetings Allowance
	notices   Allowance
}

// room tells whether one more request for metadata may pass.
func (x *bounds) room() bool { return x.answers < maxAnswers }

// arrived counts a message of the peer and decides what happens to it. With an error the connection
// has to end.
func (x *bounds) arrived(m message, now time.Time) (verdict, error) {
	switch m.kind {
	case msgChoke, msgUnchoke:
		if !x.turns.Spend(now, turnsMost, turnsEvery) {
			return refuse, errFlood
		}
	case msgBitfield, msgHaveAll, msgHaveNone:
		first := !x.mapped
		x.mapped = true
		if m.kind == msgBitfield {
			// BEP 3 allows it once, but aria2 repeats it instead of listing many new pieces. It
			// costs no more than its length.
			x.field = m.size - 5
			return pass, x.fits()
		}
		// If a peer takes back that it has all pieces, the engine still counts it, and panics when
		// the torrent is closed.
		if x.wholes++; x.wholes > wholesMost || m.kind == msgHaveNone && !first {
			return refuse, errPieces
		}
	case msgHave:
		if m.block.index >= maxPieces && x.pieces == 0 {
			return refuse, errPieces
		}
		x.mapped = true
	case msgAllowedFast, msgSuggest:
		// The engine would request allowed pieces even while the peer is parked, and goes over a
		// list of them that only grows. At a suggestion it goes over all missing pieces.
		return drop, nil
	case msgRequest:
		if m.block.length > maxBlock {
			return refuse, errLength
		}
	case msgExtended:
		switch {
		case m.extension == 0:
			if !x.greetings.Spend(now, greetingsMost, greetingsEvery) {
				return refuse, errFlood
			}
		case m.extension != metadataExtension:
			if m.size > maxNotice || !x.notices.Spend(now, noticesMost, noticesEvery) {
				return drop, nil
			}
		case m.answer && x.questions == 0:
			return refuse, errAnswer
		case m.answer:
			x.questions--
		case !x.room():
			return hold, nil
		default:
			x.answers++
		}
	case msgHashRequest:
		return drop, nil // braid has no v2 hashes (BEP 52), and the engine would end the connection
	}
	return pass, nil
}

// departs counts an extended message of the engine.
func (x bounds) departs(m message) bounds {
	switch {
	case !m.metadata: // an address in a message of peer exchange may look like a metadata message
	case m.question:
		x.questions++
	case m.answer:
		x.answers = max(0, x.answers-1)
	}
	return x
}

// fits returns an error if the length of the peer's bitfield does not match the number of pieces.
func (x *bounds) fits() error {
	if x.pieces > 0 && x.field > 0 && x.field != (uint64(x.pieces)+7)/8 {
		return errPieces
	}
	return nil
}

// SetPieces tells the filter how many pieces the torrent has. It fails if the peer has assumed
// another number.
func (f *Filter) SetPieces(pieces int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bounds.pieces = pieces
	return f.bounds.fits()
}

// Allowance bounds how often something may happen: some times at once, and once more in each
// interval.
type Allowance struct {
	spent int
	since time.Time
}

// Spend counts one time, and tells whether it is allowed.
func (a *Allowance) Spend(now time.Time, most int, every time.Duration) bool {
	if back := int(now.Sub(a.since) / every); back > 0 {
		a.spent, a.since = max(0, a.spent-back), now
	}
	if a.spent >= most {
		return false
	}
	a.spent++
	return true
}

// Idle is the time since Spend has last renewed a part of the allowance. After a long time, all of
// it is available again.
func (a *Allowance) Idle(now time.Time) time.Duration { return now.Sub(a.since) }
