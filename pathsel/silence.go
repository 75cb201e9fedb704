package pathsel

import "time"

const (
	// silentPTOs is the number of probe timeouts (RFC 9002, section 6.2.1) without a packet after
	// which a connection is silent. One or two lost packets take up to three.
	silentPTOs = 5
	// leastSilence is the shortest silence. Routers and busy hosts may pause for some hundred
	// milliseconds.
	leastSilence = time.Second
	// leastQuiet is how long no packet must have arrived before a router's message that a link is
	// down counts. Without it, a forged message could end a path that carries data; much longer,
	// and it is no faster than silence.
	leastQuiet = 150 * time.Millisecond
	// idleQuiet is the same for a connection without requests, on which only keep-alives arrive,
	// every half a second.
	idleQuiet = 900 * time.Millisecond
	// unwatched limits the time that counts between two samples. A process that was itself stopped
	// has received nothing either, and must not give up all its paths.
	unwatched = 500 * time.Millisecond
)

// Silence measures for how long nothing has arrived on a connection. It is a value and takes the
// same samples as Meter. Use a new zero value for each connection.
type Silence struct {
	last    Sample
	unheard time.Duration // since a packet arrived
	quiet   time.Duration // of that, while an answer was owed
}

// owed reports whether the peer owes an answer.
func owed(s Sample) bool { return s.State.Carries() && s.Outstanding > 0 && s.PacketsReceived > 0 }

// Add returns the Silence after one more sample.
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

// pto returns the probe timeout. It includes 25 ms, for which the remote may delay an
// acknowledgement.
func (q Silence) pto() time.Duration {
	return q.last.RTT + max(4*q.last.RTTVar, time.Millisecond) + 25*time.Millisecond
}

// Silent reports whether the connection has been silent for too long to be alive.
func (q Silence) Silent() bool { return q.quiet >= max(leastSilence, silentPTOs*q.pto()) }

// Quiet reports whether packets are overdue, so that a router's message about a broken link is
// credible.
func (q Silence) Quiet() bool {
	if owed(q.last) {
		return q.quiet >= max(leastQuiet, q.pto())
	}
	return q.unheard >= max(idleQuiet, q.pto())
}
