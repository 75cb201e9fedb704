package wire

import "time"

// lastTwo decides when to tell a peer of our last two pieces. It holds back the last piece but one,
// and tells it together with the last.
//
// The reason is libtorrent (2.0, and so qBittorrent and Deluge). When a "have" makes us a seed, it
// checks whether it is interested in us before it records the piece. If it has everything else that
// we have, it ends the connection ("uninteresting upload-only peer"). It comes back a minute later,
// or never if we have dialled. A peer that downloads as fast as we do is in that state all the
// time. With two pieces at once it becomes interested by the first.
//
// Peers with the engine that braid uses are told at once. A torrent of one piece has no other piece
// to tell: there libtorrent has to come back.
type lastTwo struct {
	told  int      // pieces that the peer was told of, or is about to be
	kept  []uint32 // held back; at most one
	since time.Time
}

// lastTwoPatience is how long the last piece but one is held back. Longer, and peers wait for that
// piece if our last one does not come; shorter, and on slow links the last one comes alone.
const lastTwoPatience = 30 * time.Second

// tell notes that we have one more of so many pieces, and returns the pieces to tell the peer now.
func (x *lastTwo) tell(piece uint32, pieces int, now time.Time) []uint32 {
	x.told++
	if pieces > 1 && x.told == pieces-1 {
		x.kept, x.since = append(x.kept, piece), now
		return nil
	}
	tell := append(x.kept, piece)
	x.kept = nil
	return tell
}

// over returns a piece that was held back for too long.
func (x *lastTwo) over(now time.Time) (tell []uint32) {
	if now.Sub(x.since) >= lastTwoPatience {
		tell, x.kept = x.kept, nil
	}
	return tell
}

// newPiecesLocked notes that we have more pieces, and returns those to tell the peer now.
func (f *Filter) newPiecesLocked(pieces ...uint32) []uint32 {
	if f.sameEngine {
		return pieces
	}
	var tell []uint32
	for _, p := range pieces {
		tell = append(tell, f.lastTwo.tell(p, f.bounds.pieces, time.Now())...)
	}
	return tell
}

// FlushKept tells the peer of a piece that was held back for too long.
func (f *Filter) FlushKept(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.toPeerLocked(haves(f.lastTwo.over(now)))
}
