package main

import (
	"fmt"
	"time"

	"braid/client"
	"braid/node"
)

// pace decides when to log a line about a running transfer: when its state has changed, and
// otherwise once an hour, as a sign of life. A line every few seconds would be 17 000 a day, among
// which nobody finds the one that matters.
type pace struct {
	state string
	at    time.Time // of the last line; zero before the first
}

const (
	logAgain = time.Hour
	// logPause is the shortest time between two lines. Without it, peers that come and go all the
	// time, perhaps on purpose, could still fill the log.
	logPause = time.Minute
)

// due tells whether to write a line now. If so, the caller must write it.
func (p *pace) due(state string, now time.Time) bool {
	since := now.Sub(p.at)
	if !p.at.IsZero() && (since < logPause || state == p.state && since < logAgain) {
		return false
	}
	p.state, p.at = state, now
	return true
}

// stateOf returns the part of a transfer's state that is worth a line in a log. Changes of rates,
// or of the number of peers, are not.
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
	return fmt.Sprint(p.Phase, partsDone(p.Have, p.Total, 10), p.Waiting != "",
		carried > 0, p.ReadRate < least, cause)
}
