package wire

import (
	"encoding/binary"
	"time"
)

// What a filter tells a peer of our pieces: all of them, or only those that a super-seed reveals
// (Conceal), and the last two at once (lastTwo).

// lastTwo decides when to tell a peer of our last two pieces. It holds back the last piece but one,
// and tells it together with the last.
//
// The reason is libtorrent (2.0, and so qBittorrent and Deluge). When a "have" makes us a seed,
// libtorrent checks whether it is interested in us before it records the piece. If it has all our
// other pieces, it ends the connection ("uninteresting upload-only peer"). It comes back a minute
// later, or never if we have dialled. That happens to each peer that downloads as fast as we do. If
// it hears of two pieces at once, the first one makes it interested.
//
// Peers with the engine that braid uses are told at once. In a torrent of one piece this is not
// possible: there libtorrent has to come back.
type lastTwo struct {
	count int   // pieces of which the peer was told, the kept one included
	kept  []int // held back; at most one
	since time.Time
}

// lastTwoPatience is how long the last piece but one is held back. If it is longer, peers may wait
// for that piece; if it is shorter, the last two are not told at once on slow links.
const lastTwoPatience = 30 * time.Second

// tell notes that we have one more piece, and returns the pieces to tell the peer now. pieces is
// their number in the torrent; 0: it is not known.
func (x *lastTwo) tell(piece, pieces int, now time.Time) []int {
	x.count++
	if pieces > 1 && x.count == pieces-1 {
		x.kept, x.since = append(x.kept, piece), now
		return nil
	}
	tell := append(x.kept, piece)
	x.kept = nil
	return tell
}

// over returns a piece that was held back for too long.
func (x *lastTwo) over(now time.Time) (tell []int) {
	if now.Sub(x.since) >= lastTwoPatience {
		tell, x.kept = x.kept, nil
	}
	return tell
}

// departsPiecesLocked decides what happens to the engine's first message about our pieces.
func (f *Filter) departsPiecesLocked(m message) verdict {
	if !f.concealing {
		f.lastTwo.count = m.pieces
		return pass
	}
	f.announceLocked()
	if m.kind == msgHaveNone {
		return pass
	}
	// A peer with the fast extension must be told explicitly that we have nothing (BEP 6).
	if !f.noRejects {
		f.instead = append(f.instead, plain(msgHaveNone)...)
	}
	return drop
}

// departsHaveLocked decides what happens to the engine's message that we have one more piece.
func (f *Filter) departsHaveLocked(piece int) verdict {
	if f.concealing {
		f.announceLocked()
		return drop
	}
	if tell := f.newPiecesLocked(piece); len(tell) != 1 {
		f.toPeerLocked(haves(tell...))
		return drop
	}
	return pass
}

// newPiecesLocked notes that we have more pieces, and returns those to tell the peer now.
func (f *Filter) newPiecesLocked(pieces ...int) []int {
	if f.sameEngine {
		return pieces
	}
	var tell []int
	for _, p := range pieces {
		tell = append(tell, f.lastTwo.tell(p, f.bounds.pieces, time.Now())...)
	}
	return tell
}

// FlushKept tells the peer of a piece that was held back for too long.
func (f *Filter) FlushKept(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.toPeerLocked(haves(f.lastTwo.over(now)...))
}

// TellExtended sends the peer one more extended handshake (BEP 10), with news since the connection
// began. The peer must have sent one itself.
func (f *Filter) TellExtended(handshake []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := binary.BigEndian.AppendUint32(nil, uint32(2+len(handshake)))
	f.toPeerLocked(append(append(b, msgExtended, 0), handshake...))
}

// TellPort tells the peer at which port a node of the DHT is (BEP 5).
func (f *Filter) TellPort(port uint16) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.toPeerLocked(binary.BigEndian.AppendUint16([]byte{0, 0, 0, 3, msgPort}, port))
}

// portion is the number of pieces of which a peer is told at a time. Messages for all pieces at
// once would take nine bytes of memory for each piece and each peer.
const portion = 1024

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

// Reveal tells the peer that we have these pieces, as fast as the peer reads.
func (f *Filter) Reveal(pieces ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range pieces {
		f.unannounced.Grow(i)
		f.unannouncedFrom = min(f.unannouncedFrom, i)
	}
	f.writeSoonLocked()
}

// RevealAll is Reveal for a set. The set belongs to the filter from now on.
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
	var pieces []int
	for len(pieces) < portion {
		i := f.unannounced.Next(f.unannouncedFrom, nil)
		if i < 0 {
			f.unannounced = nil
			break
		}
		f.unannounced.Clear(i)
		f.unannouncedFrom = i + 1
		pieces = append(pieces, i)
	}
	return haves(f.newPiecesLocked(pieces...)...)
}

// announceLocked notes that the peer hears now, or concludes from our silence, that we have
// nothing. From now on it may be told of pieces.
func (f *Filter) announceLocked() {
	if !f.announced {
		f.announced = true
		f.writeSoonLocked()
	}
}
