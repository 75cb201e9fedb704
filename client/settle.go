package client

import (
	"time"

	"braid/storage"
)

// A transfer is complete when every piece is verified, is on disk, and is still there.

// settling is where a transfer stands on that.
type settling struct {
	underWay bool
	after    time.Time // not before
}

// settled is an event: what has been downloaded is on disk, but for the pieces that are gone, which are missing again.
type settled struct {
	gone int
	err  error
}

// settle is called when every piece is verified. It may take as long as a slow disk does.
func (t *Transfer) settle() {
	if t.isDone || t.settling.underWay || time.Now().Before(t.settling.after) {
		return
	}
	t.settling.underWay = true
	t.lookups.Go(func() {
		gone, err := storage.Settle(t.full.store, t.source.InfoHash)
		if len(gone) > 0 {
			t.blame.distrust()
		}
		for _, p := range gone {
			if err == nil {
				err = t.torrent.Piece(p).VerifyDataContext(t.ctx) // the engine believes what it sees itself
			}
		}
		t.inbox.put(settled{len(gone), err})
	})
}

func (t *Transfer) onSettled(e settled) {
	t.settling.underWay = false
	switch {
	case t.isDone || t.ctx.Err() != nil:
	case storage.IsFull(e.err):
		t.settling.after = time.Now().Add(roomEvery)
		t.waiting = "the disk is full: make room, so that it can be recorded what is complete"
		t.log.Warn(t.waiting, "error", e.err)
	case e.err != nil:
		t.fail(e.err)
	case e.gone > 0:
		t.log.Warn("files were deleted or cut short since they were written: what they held is fetched again", "pieces", e.gone)
		t.want.again()
	default:
		t.complete()
	}
}
