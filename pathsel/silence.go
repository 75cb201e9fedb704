package pathsel

import "time"

const (
	// silentPTOs is how many probe timeouts (RFC 9002, section 6.2.1) without any packet are silence. One or two lost
	// packets take up to three.
	silentPTOs = 5
	// leastSilence: routers, and hosts with much to do, stop for some hundred milliseconds without being dead.
	leastSilence = time.Second
	// leastQuiet is how long nothing must have arrived for a router's word that a link is down to count: one look in which
	// no packet came. Without it a forged message ends a path that carries data; much longer, and it says no more than
	// silence does.
	leastQuiet = 150 * time.Millisecond
	// idleQuiet is the same where nothing is owed, and only signs of life arrive, every half a second.
	idleQuiet = 900 * time.Millisecond
	// unwatched bounds what the time between two samples counts: a process that was itself stopped has heard
	// nothing either, and must not take all its paths for dead.
	unwatched = 500 * time.Millisecond
)

// Silence measures for how long nothing has arrived on a connection. It is a value like Meter, and takes the same
// samples; the zero value is ready, for each connection anew.
type Silence struct {
	last    Sample
	unheard time.Duration // since a packet arrived
	quiet   time.Duration // of that, while an answer was owed
}

// owed tells whether the peer owes an answer.
func owed(s Sample) bool { return s.State.Carries() && s.Outstanding > 0 && s.PacketsReceived > 0 }

// Add takes one more sample.
func (q Silence) Add(s Sample) Silence {
	prev := q.last
	q.last = s
	passed := min(max(0, s.At.Sub(prev.At)), unwatched)
	q.unheard += passed
	q.quiet += passed
	if prev.At.IsZero() || s.PacketsReceived != prev.PacketsReceived {
		q.unheard, q.quiet = 0, 0
	}
	if !owed(s) || !owed(prev) {
		q.quiet = 0
	}
	return q
}

// pto is the probe timeout, with the 25 ms for which the other side may hold an acknowledgement back.
func (q Silence) pto() time.Duration {
	return q.last.RTT + max(4*q.last.RTTVar, time.Millisecond) + 25*time.Millisecond
}

// Silent tells whether the connection has been quiet for too long to be alive.
func (q Silence) Silent() bool { return q.quiet >= max(leastSilence, silentPTOs*q.pto()) }

// Quiet tells whether so little has arrived of late that a router may be believed who says that the path is broken.
func (q Silence) Quiet() bool {
	if owed(q.last) {
		return q.quiet >= max(leastQuiet, q.pto())
	}
	return q.unheard >= max(idleQuiet, q.pto())
}
