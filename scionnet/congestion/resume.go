package congestion

import "time"

// Resume tells a new flow what the path is remembered to carry, in bytes a second, at which round
// trip. Call it before the first packet.
func (f *Flow) Resume(rate float64, rtt time.Duration) {}
