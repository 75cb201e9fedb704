package wire

import "time"

// How a peer hears of our last pieces.
//
// When a HAVE makes us a seed, libtorrent (2.0, and so qBittorrent and Deluge) looks whether it is interested in us before it takes
// note of the piece. If it has everything else that we have, it ends the connection ("uninteresting upload-only peer"), and does not
// come back for a minute, or never where we have dialled. Whoever downloads as fast as we do is in that state all the time.
//
// So a peer hears of the last piece but one together with the last: by the first of the two it becomes interested. Peers with the
// engine that braid uses need no such thing. A torrent of one piece has no other to tell of: there libtorrent has to come back.

// lastTwoPatience is how long the last piece but one is kept from a peer. Longer, and a peer waits for it that could have it, where
// our last piece does not come; shorter, and on slow links the last one comes alone.
const lastTwoPatience = 30 * time.Second

// lastTwo is what a peer was told of our pieces.
type lastTwo struct {
	told  int      // pieces that it was told of, or is about to be
	kept  []uint32 // at most one
	since time.Time
}

// tell notes that we have one more piece, of so many, and returns those that the peer is to be told of now.
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

// over returns the piece that was kept for too long.
func (x *lastTwo) over(now time.Time) (tell []uint32) {
	if now.Sub(x.since) >= lastTwoPatience {
		tell, x.kept = x.kept, nil
	}
	return tell
}

// newPiecesLocked notes that we have pieces, and returns those that the peer is to be told of now.
func (f *Filter) newPiecesLocked(pieces ...uint32) []uint32 {
	if f.kin {
		return pieces
	}
	var tell []uint32
	for _, p := range pieces {
		tell = append(tell, f.lastTwo.tell(p, f.bounds.pieces, time.Now())...)
	}
	return tell
}

// tellKept tells the peer of a piece that was kept from it for too long.
func (f *Filter) FlushKept(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tellLocked(haves(f.lastTwo.over(now)))
}
