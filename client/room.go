package client

import (
	"time"

	"braid/storage"
)

// A full disk pauses a transfer: it asks for no more data, serves what it has, and goes on when there is room.

// roomEvery is how often it looks for room.
const roomEvery = 3 * time.Second

const fullMessage = "the disk is full: make room; the download goes on by itself, and what is there is served meanwhile"

// fullDisk is the state of a pause.
type fullDisk struct {
	store   storage.Store
	err     error // nil: there is room as far as we know
	looking bool
	looked  time.Time
}

// diskFull and room are events: a write did not find room; it was looked for, and there if err is nil.
type (
	diskFull struct{ err error }
	room     struct{ err error }
)

func (t *Transfer) onFull(err error) {
	if t.isDone || t.full.err != nil {
		return
	}
	t.full.err, t.full.looked = err, time.Now()
	t.torrent.DisallowDataDownload()
	t.log.Warn("paused: "+fullMessage, "error", err)
}

// lookForRoom is called every second. To look may take as long as a slow disk does.
func (t *Transfer) lookForRoom() {
	if t.full.err == nil || t.full.looking || time.Since(t.full.looked) < roomEvery {
		return
	}
	t.full.looking = true
	t.lookups.Go(func() { t.inbox.put(room{storage.HasRoom(t.full.store)}) })
}

func (t *Transfer) onRoom(err error) {
	t.full.looking, t.full.looked = false, time.Now()
	if err != nil || t.full.err == nil {
		return
	}
	t.full.err = nil
	t.askAgain()
	t.log.Info("there is room on the disk again: the download goes on")
}

// askAgain has the engine ask for data again. It keeps two sets of the pieces that it wants, an order and a bitmap. During a pause
// each claim of a peer, and each connection that ends, takes pieces out of the order alone; AllowDataDownload puts one piece
// after the other back, and the engine panics if it compares the sets in between. A priority that is set during the pause takes
// the piece out of both, so that they grow alike.
func (t *Transfer) askAgain() {
	for i, p := range t.want.pieces {
		t.torrent.Piece(i).SetPriority(enginePriority(p))
	}
	t.torrent.AllowDataDownload()
	if t.rarest != nil { // which pieces come first is decided anew
		clear(t.rarest.first)
	}
	t.want.ahead = t.want.first
	t.want.advance(t.torrent)
}
