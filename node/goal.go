package node

import (
	"fmt"
	"time"

	"braid/client"
)

// Goal says when a complete torrent has been served enough: as soon as one of the two is reached.
// A part that is 0 is never reached.
type Goal struct {
	// Ratio is of sent payload to the size of the wanted data.
	Ratio float64 `json:"ratio,omitempty"`
	// Time is since the torrent was complete.
	Time time.Duration `json:"time,omitempty"`
}

// IsZero tells whether the torrent is to be served for ever.
func (g Goal) IsZero() bool { return g == Goal{} }

// reached returns the reason to stop serving a complete torrent, or "" to go on.
func (g Goal) reached(p client.Progress, served time.Duration) string {
	switch {
	case p.Err != nil:
	case g.Ratio > 0 && float64(p.Sent) >= g.Ratio*float64(p.Total):
		return fmt.Sprintf("ratio %.2f is reached", g.Ratio)
	case g.Time > 0 && served >= g.Time:
		return fmt.Sprintf("served for %v", g.Time)
	}
	return ""
}
