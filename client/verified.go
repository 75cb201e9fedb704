package client

import "time"

// VerifiedPiece is a piece that has come and was found to be right.
type VerifiedPiece struct {
	Index int
	Since time.Duration // since the transfer was added
}

// tellVerified calls f for every piece when it is verified, until the transfer ends. It tells again
// of a piece that had to be fetched again.
func (c *core) tellVerified(f func(VerifiedPiece)) {
	changes, stop := c.torrent.Changes()
	c.workers.Go(func() {
		defer stop()
		has := map[int]bool{}
		for {
			select {
			case <-c.ctx.Done():
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
