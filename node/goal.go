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

// Goal says when to stop serving a complete torrent: when the first of its parts is reached. If a
// part of a torrent's goal is 0, the node's part holds instead; if it is below 0, there is no such
// limit. In the node's goal, both mean no limit.
type Goal struct {
	// Ratio of sent payload to the size of the wanted data.
	Ratio float64 `json:"ratio,omitempty"`
	// Time for which the torrent has run since it was complete, also in earlier processes.
	Time time.Duration `json:"time,omitempty"`
	// Idle is a time in which the torrent has sent nothing.
	Idle time.Duration `json:"idle,omitempty"`
}

// IsZero tells whether the goal has no parts.
func (g Goal) IsZero() bool { return g == Goal{} }

func (g Goal) check() error {
	if math.IsNaN(g.Ratio) || math.IsInf(g.Ratio, 0) {
		return errors.New("the ratio of a goal is not a number")
	}
	return nil
}

// Or fills in the parts that are 0 from another goal.
func (g Goal) Or(other Goal) Goal {
	return Goal{
		Ratio: cmp.Or(g.Ratio, other.Ratio),
		Time:  cmp.Or(g.Time, other.Time),
		Idle:  cmp.Or(g.Idle, other.Idle),
	}
}

// reached returns the reason to stop serving a complete torrent, or "" to go on. served is the time
// for which it has been served; idle is the time since it has last sent data.
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

// deliverTime bounds how long a torrent waits, after its goal is reached, until peers have received
// what it has sent. Without it, a peer that is gone or choked would delay the end for ever.
const deliverTime = 30 * time.Second

// delivers tells whether a torrent whose goal is reached must wait before it closes its
// connections: an interested peer may not have received the last data yet. If data was sent beyond
// the goal, it does not wait: the peer is in the middle of its download, and would not end soon.
func delivers(peers []client.PeerProgress, beyond int64, idle time.Duration) bool {
	wantsData := func(p client.PeerProgress) bool { return p.PeerInterested }
	return beyond == 0 && idle < deliverTime && slices.ContainsFunc(peers, wantsData)
}
