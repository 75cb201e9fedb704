package client

import (
	"time"

	"braid/storage"
)

// confirmer makes sure, when every wanted piece is verified, that all of them are on disk and still
// there. Only then the transfer is complete.
type confirmer struct {
	*core
	confirmed func() // the transfer is complete
	underWay  bool
	after     time.Time // it is not tried before
	waiting   string    // what the user can do about it; empty: it waits for nothing
}

// isDue tells whether it may be tried now.
func (c *confirmer) isDue() bool {
	return !c.isDone && c.want != nil && !c.underWay && !time.Now().Before(c.after)
}

// begin starts writing everything to disk, which may take as long as a slow disk does.
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
		for _, p := range missing {
			if err == nil {
				err = c.torrent.Verify(c.ctx, p) // the engine believes only what it sees itself
			}
		}
		c.inbox.put(func() { c.end(len(missing), err) })
	})
}

// end is called when all data is on disk, except for pieces that are missing again.
func (c *confirmer) end(missing int, err error) {
	c.underWay, c.waiting = false, ""
	switch {
	case c.isDone || c.ctx.Err() != nil:
	case storage.IsFull(err):
		c.after = time.Now().Add(roomEvery)
		c.waiting = "the disk is full: make room, so that it can be recorded what is complete"
		c.log.Warn(c.waiting, "error", err)
	case err != nil:
		c.fail(err)
	case missing > 0:
		c.log.Warn(
			"files were deleted or cut short since they were written; their pieces are fetched again",
			"pieces", missing)
		c.want.again()
	default:
		c.confirmed()
	}
}
