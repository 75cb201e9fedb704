package client

import (
	"fmt"
	"time"

	"braid/storage"
)

// A stall is a time without data although peers serve us. checkup looks for the cause of any time
// without data, but has no reason to say anything while all peers answer. A stall is worth a
// warning, since it may be a defect of this program, of a peer or of the disk.

// examineAfter is the time without data after which braid examines the ways to peers, and what else
// may be the cause. Much earlier, it would examine usual pauses.
const examineAfter = time.Second

// stall is what is known after a second without data.
type stall struct {
	Serving   int  // peers that serve us
	DiskBusy  bool // blocks wait in memory until the disk has taken earlier ones
	Limited   bool // bytes that have arrived wait for their turn under a rate limit
	Arriving  bool // bytes arrive, but no whole block yet
	Requested int  // blocks that the peers that serve us have not answered yet
}

// cause says why no data comes, as a part of a sentence. It is empty if this is no stall.
func (s stall) cause() string {
	switch {
	case s.Serving == 0:
		return ""
	case s.DiskBusy:
		return "the disk: " + busyMessage
	case s.Limited, s.Arriving:
		return "" // the user wants it so slow, or a block takes longer than a second
	case s.Requested == 0:
		return "nothing is requested from them"
	}
	blocks := plural(s.Requested, "block is", "blocks are")
	return fmt.Sprintf("the peers or the paths to them: %s requested, and none arrives", blocks)
}

// warnAgain is the least time between two warnings of a transfer with the same cause. A transfer may
// stall at every few blocks.
const warnAgain = time.Minute

// stallWarner warns of stalls.
type stallWarner struct {
	*core
	last   string // the cause in the last warning
	warned time.Time
}

// look is called when no data has come for a second, and as long as none comes.
func (w *stallWarner) look(now time.Time) {
	s := w.state(now)
	cause := s.cause()
	if cause == "" || cause == w.last && now.Sub(w.warned) < warnAgain {
		return
	}
	w.last, w.warned = cause, now
	w.log.Warn("the download stands still, although peers serve it", "peers", s.Serving, "cause", cause)
}

func (w *stallWarner) state(now time.Time) (s stall) {
	s.DiskBusy = storage.IsBusy(w.store.Store, w.source.InfoHash)
	for r := range w.peers.connected() {
		g := r.link.gauge.Load()
		if !g.unchoked.Load() {
			continue
		}
		s.Serving++
		s.Requested += g.pending()
		s.Limited = s.Limited || r.link.WaitsForTurn()
		_, last := r.link.Reads()
		s.Arriving = s.Arriving || now.Sub(time.Unix(0, last)) < examineAfter
	}
	return s
}
