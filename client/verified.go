package client

import "time"

// VerifiedPiece is a piece that has come and was found to be right.
type VerifiedPiece struct {
	Index int
	Since time.Duration // since the transfer was added
}

// tellVerified tells of every piece when it is verified, until the transfer ends. A piece that has to be fetched again is told of
// again.
func (t *Transfer) tellVerified(verified func(VerifiedPiece)) {
	changes := t.torrent.SubscribePieceStateChanges()
	t.lookups.Go(func() {
		defer changes.Close()
		has := map[int]bool{}
		for {
			select {
			case <-t.ctx.Done():
				return
			case c, ok := <-changes.Values:
				if !ok {
					return
				}
				now := c.Ok && c.Complete
				if now && !has[c.Index] {
					verified(VerifiedPiece{c.Index, time.Since(t.start)})
				}
				has[c.Index] = now
			}
		}
	})
}
