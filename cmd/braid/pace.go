package main

import (
	"fmt"
	"time"

	"braid/client"
	"braid/node"
)

// pace decides when a log gets a line about something that goes on: when its state has changed, and
// otherwise once an hour, which says that braid is alive. A line every few seconds is 17 000 a day,
// in which nobody finds the one that matters.
type pace struct {
	state string
	at    time.Time // of the last line; zero before the first
}

const (
	logAgain = time.Hour
	// logPause is the least time between two lines. Without it a seed whose peers come and go all
	// the time, or are made to, writes as much as before.
	logPause = time.Minute
)

// due tells whether a line is due, and counts on it being written.
func (p *pace) due(state string, now time.Time) bool {
	since := now.Sub(p.at)
	if !p.at.IsZero() && (since < logPause || state == p.state && since < logAgain) {
		return false
	}
	p.state, p.at = state, now
	return true
}

// stateOf returns the part of a transfer's state that the reader of a log cares about. Rates and
// peers that come and go beside others do not.
func stateOf(p client.Progress, uploads bool) string {
	if uploads {
		return fmt.Sprint(p.Phase, node.ConnectedPeers(p) > 0)
	}
	carried := 0
	for _, x := range p.Paths {
		if x.State.Carries() {
			carried++
		}
	}
	cause := client.CauseKind("")
	if p.Cause != nil {
		cause = p.Cause.Kind
	}
	return fmt.Sprint(p.Phase, tenth(p.Have, p.Total), p.Waiting != "", carried > 0, p.ReadRate < least, cause)
}

// tenth is how many tenths of the whole are done.
func tenth(done, total int64) int64 {
	if total <= 0 {
		return 0
	}
	return int64(10 * float64(done) / float64(total))
}
