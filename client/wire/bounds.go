package wire

import (
	"errors"
	"time"
)

// What one connection may make the engine do.
//
// The engine answers at once, into a buffer without a limit that waits for the peer to read. It counts only requests for blocks.
// So a peer is read on only while few answers to its requests for metadata wait: who does not read is not read either, and
// nobody who does read is held up, since each answer that is written makes room for the next. Connections end where a peer says
// what no peer has a reason to say.

const (
	// maxServing is how many requests for blocks wait for an answer. The engine takes 1024 of a peer at a time and rejects more, but the
	// rejects wait too, and a peer may ask anew in the moment in which it cancels.
	maxServing = 2048
	// maxUnsaid is how many bytes wait for a peer before its requests are no longer answered with rejects: it asks on and on
	// although it is choked, and does not read.
	maxUnsaid = 64 << 10
	// maxBlock is the longest block that a peer may ask for, in bytes. Everybody asks for 16 KiB; of each the engine keeps a copy or
	// three until it is read.
	maxBlock = 128 << 10
	// maxAnswers is how many answers to requests for metadata wait, 16 KiB each. Twice as many can be in the engine's hands.
	maxAnswers = 4
	// Turns are messages to choke and unchoke us, at each of which the engine goes over its requests. Peers decide every ten seconds
	// whom they serve, and braid holds back and releases once a second.
	turnsMost  = 60
	turnsEvery = time.Second
	// wholesMost is how often a peer says that it has all pieces, or none, at which the engine goes over all of them. Once,
	// says BEP 6; aria2 says so again in place of many news.
	wholesMost = 4
	// Greetings are extended handshakes, which may be repeated (BEP 10). With each a peer may set the size of the metadata anew, up
	// to 16 MiB that the engine allocates, and asks all others for again.
	greetingsMost  = 8
	greetingsEvery = time.Minute
	// MaxMetadata is the largest info dictionary that is fetched, in bytes: 800 000 pieces, or all files
	// that a torrent may have.
	MaxMetadata = 16 << 20
	// maxPieces is how many pieces a torrent can have whose description is still to be fetched. The
	// engine keeps a peer's pieces in a set that takes little room only where they are close together.
	maxPieces = MaxMetadata / 20
)

var (
	errForeign = errors.New("not a BitTorrent connection")
	errFlood   = errors.New("the peer asks for more than it reads, or repeats itself without end")
	errPieces  = errors.New("the peer says again and again which pieces it has, or speaks of another number of pieces")
	errAnswer  = errors.New("the peer sends metadata that nobody has asked for")
	errLength  = errors.New("the peer asks for a block that is too long")
)

// bounds are what is counted of a connection.
type bounds struct {
	pieces    int    // of the torrent; 0 while it is unknown
	mapped    bool   // the peer has said which pieces it has
	wholes    int    // times that it has said all, or none
	field     uint64 // as a bitfield of so many bytes; 0: otherwise
	answers   int    // that wait for the peer
	questions int    // of ours that wait for an answer
	turns     allowance
	greetings allowance
}

// room tells whether one more request for metadata may pass.
func (x *bounds) room() bool { return x.answers < maxAnswers }

// arrived counts a message of the peer and tells what becomes of it; with an error the connection has to end.
func (x *bounds) arrived(m message, now time.Time) (verdict, error) {
	switch m.kind {
	case msgChoke, msgUnchoke:
		if !x.turns.spend(now, turnsMost, turnsEvery) {
			return refuse, errFlood
		}
	case msgBitfield, msgHaveAll, msgHaveNone:
		first := !x.mapped
		x.mapped = true
		if m.kind == msgBitfield {
			// Once, says BEP 3, but aria2 sends another one in place of many news. It costs as much as it is long.
			x.field = m.size - 5
			return pass, x.fits()
		}
		// The engine would still count a peer that takes back that it has all pieces, and panic when the torrent is closed.
		if x.wholes++; x.wholes > wholesMost || m.kind == msgHaveNone && !first {
			return refuse, errPieces
		}
	case msgHave:
		if m.block.index >= maxPieces && x.pieces == 0 {
			return refuse, errPieces
		}
		x.mapped = true
	case msgAllowedFast, msgSuggest:
		// The one would be asked for while parked, and has the engine go over a list that only grows; at the other it goes over
		// all missing pieces.
		return drop, nil
	case msgRequest:
		if m.block.length > maxBlock {
			return refuse, errLength
		}
	case msgExtended:
		switch {
		case m.extension == 0:
			if !x.greetings.spend(now, greetingsMost, greetingsEvery) {
				return refuse, errFlood
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
		return drop, nil // no torrent has hashes to tell (BEP 52), and the engine ends the connection
	}
	return pass, nil
}

// departs counts an extended message of the engine.
func (x bounds) departs(m message) bounds {
	switch {
	case m.question:
		x.questions++
	case m.answer:
		x.answers = max(0, x.answers-1)
	}
	return x
}

// fits tells whether the peer's bitfield is as long as the torrent's number of pieces makes it, if both are known.
func (x *bounds) fits() error {
	if x.pieces > 0 && x.field > 0 && x.field != (uint64(x.pieces)+7)/8 {
		return errPieces
	}
	return nil
}

// describe tells the gate how many pieces the torrent has. It fails if the peer has spoken of another number.
func (f *Filter) SetPieces(pieces int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bounds.pieces = pieces
	return f.bounds.fits()
}

// allowance is how often something may happen: a number of times at once, and once more in each interval.
type allowance struct {
	spent int
	since time.Time
}

// spend counts one more time, and tells whether it is allowed.
func (a *allowance) spend(now time.Time, most int, every time.Duration) bool {
	if back := int(now.Sub(a.since) / every); back > 0 {
		a.spent, a.since = max(0, a.spent-back), now
	}
	if a.spent >= most {
		return false
	}
	a.spent++
	return true
}
