package node

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"braid/client"
)

// Goal says when a complete torrent has been served enough: as soon as one of its parts is reached.
// A part of a torrent's goal that is 0 is the node's, and one below 0 is never reached. A part of
// the node's goal is never reached if it is 0 or below.
type Goal struct {
	// Ratio is of sent payload to the size of the wanted data.
	Ratio float64 `json:"ratio,omitempty"`
	// Time is since the torrent was complete, or since it was started, whichever is later.
	Time time.Duration `json:"time,omitempty"`
	// Idle is the time in which the torrent has sent nothing.
	Idle time.Duration `json:"idle,omitempty"`
}

// IsZero tells whether the goal says nothing.
func (g Goal) IsZero() bool { return g == Goal{} }

func (g Goal) check() error {
	if math.IsNaN(g.Ratio) || math.IsInf(g.Ratio, 0) {
		return errors.New("the ratio of a goal is not a number")
	}
	return nil
}

// or returns the goal with the other one's parts where it has none.
func (g Goal) or(other Goal) Goal {
	return Goal{
		Ratio: cmp.Or(g.Ratio, other.Ratio),
		Time:  cmp.Or(g.Time, other.Time),
		Idle:  cmp.Or(g.Idle, other.Idle),
	}
}

// reached returns the reason to stop serving a complete torrent, or "" to go on. It was served for
// a time, and has sent nothing for the idle time at its end.
func (g Goal) reached(p client.Progress, served, idle time.Duration) string {
	switch {
	case p.Err != nil:
	case g.Ratio > 0 && p.Total > 0 && float64(p.Sent) >= g.Ratio*float64(p.Total):
		return fmt.Sprintf("ratio %.2f is reached", g.Ratio)
	case g.Time > 0 && served >= g.Time:
		return fmt.Sprintf("served for %v", g.Time)
	case g.Idle > 0 && idle >= g.Idle:
		return fmt.Sprintf("nothing was sent for %v", g.Idle)
	}
	return ""
}

// deliverTime is how long a torrent that was served enough waits for peers to take what it has
// sent. A peer that is gone, or gets nothing, would hold it for ever.
const deliverTime = 30 * time.Second

// delivers tells whether a torrent that was served enough has to wait: a peer wants data, and may
// not have what was sent last, which would be lost with its connection. Data that was sent beyond
// the goal shows that the peer is in the middle of its download.
func delivers(peers []client.PeerProgress, beyond int64, idle time.Duration) bool {
	wantsData := func(p client.PeerProgress) bool { return p.PeerInterested }
	return beyond == 0 && idle < deliverTime && slices.ContainsFunc(peers, wantsData)
}
