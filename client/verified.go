package client

import "time"

// lastChanges is how long a transfer that ends waits for the next change of a piece: the engine hands
// changes over one by one, and the last ones may still be under way.
const lastChanges = 100 * time.Millisecond

// tellVerified calls f for every piece when it is verified, until the transfer ends. It tells again
// of a piece that had to be fetched again.
func (c *core) tellVerified(f func(VerifiedPiece)) {
	changes, stop := c.torrent.Changes()
	c.workers.Go(func() {
		defer stop()
		has := map[int]bool{}
		ended, over := c.ctx.Done(), (<-chan time.Time)(nil)
		for {
			if ended == nil {
				over = time.After(lastChanges)
			}
			select {
			case <-ended:
				ended = nil
				continue
			case <-over:
				return
			case x, ok := <-changes:
				if !ok {
					return
				}
				now := x.Ok && x.Complete
				if now && !has[x.Index] {
					f(VerifiedPiece{x.Index, time.Since(c.start)})
				}
				has[x.Index] = now
			}
		}
	})
}
