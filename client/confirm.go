package client

import (
	"errors"
	"time"

	"braid/storage"
)

// confirmer makes sure that all wanted pieces are on disk, once they are verified. Only then the
// transfer is complete.
type confirmer struct {
	*core
	confirmed func() // is called when that is sure
	underWay  bool
	after     time.Time // the next attempt is not before this time
	waiting   string    // for what, and what the user can do; empty: for nothing
}

// isDue tells whether an attempt may begin now.
func (c *confirmer) isDue() bool {
	return !c.isDone && c.want != nil && !c.underWay && !time.Now().Before(c.after)
}

// begin starts writing everything to disk, in the background: a slow disk takes its time.
func (c *confirmer) begin() {
	if !c.isDue() {
		return
	}
	c.underWay = true
	c.workers.Go(func() {
		missing, err := storage.SyncAndCheck(c.store.Store, c.source.InfoHash)
		if len(missing) > 0 {
			c.blame.distrust()
		}
		// The engine finds out by hashing the pieces, after an error too: the next attempt does not
		// find them again.
		for _, p := range missing {
			err = errors.Join(err, c.torrent.Verify(c.ctx, p))
		}
		c.inbox.put(func() { c.end(len(missing), err) })
	})
}

// end is called after an attempt. missing is the number of pieces that are not on disk.
func (c *confirmer) end(missing int, err error) {
	c.underWay, c.waiting = false, ""
	if missing > 0 {
		c.want.again()
	}
	switch {
	case c.isDone || c.ctx.Err() != nil:
	case storage.IsFull(err):
		c.after = time.Now().Add(roomEvery)
		c.waiting = "the disk is full: make room, so that it can be recorded what is complete"
		c.log.Warn(c.waiting, "error", err)
	case err != nil:
		c.fail(err)
	case missing > 0:
		c.log.Warn("files were deleted or cut short since they were written; "+
			"their pieces are fetched again", "pieces", missing)
	default:
		c.confirmed()
	}
}
