package pathsel

import "time"

const (
	// silentPTOs is how many probe timeouts (RFC 9002, section 6.2.1) without any packet are silence. One or two lost
	// packets take up to three.
	silentPTOs = 5
	// leastSilence: routers, and hosts with much to do, stop for some hundred milliseconds without being dead.
	leastSilence = time.Second
	// unwatched bounds what the time between two samples counts: a process that was itself stopped has heard
	// nothing either, and must not take all its paths for dead.
	unwatched = 500 * time.Millisecond
)

// Silence measures for how long nothing has arrived on a connection while an answer was owed. It is a value like
// Meter, and takes the same samples; the zero value is ready, for each connection anew.
type Silence struct {
	last  Sample
	quiet time.Duration
}

// Add takes one more sample.
func (q Silence) Add(s Sample) Silence {
	prev := q.last
	q.last = s
	owed := func(s Sample) bool { return s.State.Carries() && s.Outstanding > 0 && s.PacketsReceived > 0 }
	if !owed(s) || !owed(prev) || s.PacketsReceived != prev.PacketsReceived {
		q.quiet = 0
		return q
	}
	q.quiet += min(max(0, s.At.Sub(prev.At)), unwatched)
	return q
}

// Silent tells whether the connection has been quiet for too long to be alive.
func (q Silence) Silent() bool {
	// The probe timeout, with the 25 ms for which the other side may hold an acknowledgement back.
	pto := q.last.RTT + max(4*q.last.RTTVar, time.Millisecond) + 25*time.Millisecond
	return q.quiet >= max(leastSilence, silentPTOs*pto)
}
