package sim

import (
	"slices"
	"time"

	"braid/pathsel"
)

// Client is a simulated download with its own selector.
type Client struct {
	Selector pathsel.Selector
	MaxPaths int
	// Peers and the paths to each of them.
	Peers [][]pathsel.Path
	Start time.Duration
	// Size is the payload in bytes; 0 means endless.
	Size float64
	Seed uint64
	// Hints are the recommended paths that the client was given.
	Hints pathsel.Hints
	// Piece is the size in bytes of payload after which ClientResult.First is taken.
	Piece float64
}

// Event is a decision that was carried out, with its time since the start.
type Event struct {
	At time.Duration
	pathsel.Decision
}

// ClientResult is the outcome of one client.
type ClientResult struct {
	// PerSecond is payload in bits per second, for each second.
	PerSecond []float64
	Events    []Event
	// Waited is the total time in which the selector reported that no path was usable.
	Waited time.Duration
	// Done is when the download was complete; 0 if it was not.
	Done time.Duration
	// First is when as much payload as one piece had arrived; 0 if it had not.
	First time.Duration
	// Last is the last view that the selector saw.
	Last pathsel.View
}

// Rate is the mean payload rate in bits per second between two times.
func (r ClientResult) Rate(from, to time.Duration) float64 {
	var sum float64
	a, b := int(from/time.Second), min(int(to/time.Second), len(r.PerSecond))
	for _, x := range r.PerSecond[a:b] {
		sum += x
	}
	return sum / float64(b-a)
}

// conn is one path-level peer of a client.
type conn struct {
	pathsel.Candidate
	flow  *flow
	meter pathsel.Meter
	then  pathsel.State // after the handshake
	// ready is when the handshake ends. It is postponed while the path is dead.
	began, ready time.Duration
	before       float64 // bytes by earlier connections
}

func (c *conn) read() float64 {
	n := c.before
	if c.flow != nil {
		n += c.flow.delivered
	}
	return n * PayloadShare
}

const (
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 5 * time.Second
)

// client is the running state of a Client.
type client struct {
	Client
	conns  []*conn
	memory pathsel.Memory
	done   bool
	result ClientResult
	second float64 // bytes read at the last full second
}

func (cl *client) read() (sum float64) {
	for _, c := range cl.conns {
		sum += c.read()
	}
	return sum
}

// reached notes the time at which the first piece was complete.
func (cl *client) reached(at time.Duration) {
	if cl.result.First == 0 && cl.Piece > 0 && cl.read() >= cl.Piece {
		cl.result.First = at - cl.Start
	}
}

// tick brings the connections up to date, takes a view and carries out the plan.
func (cl *client) tick(s *simulation, at time.Duration) {
	if cl.done || at < cl.Start {
		return
	}
	if len(cl.conns) == 0 {
		cl.mapPaths()
	}
	now := epoch.Add(at)
	total := cl.read()
	if cl.Size > 0 && total >= cl.Size {
		cl.done, cl.result.Done = true, at-cl.Start
		for _, c := range cl.conns {
			cl.disconnect(c, pathsel.Idle, now)
		}
		return
	}
	view := pathsel.View{Now: now, MaxPaths: cl.MaxPaths, Seed: cl.Seed, Memory: cl.memory}
	if cl.Size > 0 {
		view.Remaining = uint64(cl.Size - total)
	}
	for _, c := range cl.conns {
		cl.update(c, at)
		view.Candidates = append(view.Candidates, c.Candidate)
	}
	plan := cl.Selector.Decide(view)
	cl.memory = plan.Memory
	cl.result.Last = view
	if plan.Waiting != "" {
		cl.result.Waited += s.tick
	}
	for _, d := range plan.Decisions {
		cl.result.Events = append(cl.result.Events, Event{at, d})
		cl.carryOut(s, d, at)
	}
}

func (cl *client) mapPaths() {
	for n, paths := range cl.Peers {
		peer := pathsel.PeerID('a' + rune(n))
		for _, c := range pathsel.Map(peer, paths, len(paths)) {
			c.Hint = cl.Hints.Rank(c.Path)
			cl.conns = append(cl.conns, &conn{Candidate: c})
		}
	}
}

// update updates a connection: handshakes, losses, counters.
func (cl *client) update(c *conn, at time.Duration) {
	now := epoch.Add(at)
	wasSilent := c.Silent
	c.Silent, c.Quiet = false, false
	if f := c.flow; f != nil {
		rtt := time.Duration(f.rtt() * float64(time.Second))
		for _, l := range f.hops {
			if l.now.Down {
				reported := epoch.Add(max(l.downAt, c.began) + rtt/2)
				if !reported.After(now) && reported.After(c.RevokedAt) {
					c.RevokedAt = reported
				}
			}
		}
		alive := f.alive()
		c.RTT = rtt
		switch {
		case c.State == pathsel.Opening && !alive:
			if at-c.began > handshakeTimeout || !c.RevokedAt.Before(epoch.Add(c.began)) {
				cl.disconnect(c, pathsel.Failed, now)
			}
			c.ready = at + 2*rtt
		case c.State == pathsel.Opening && at >= c.ready:
			c.State, c.Since = c.then, now
			c.Handshake, c.Failures, c.RetryAt = at-c.began, 0, time.Time{}
			f.start(at)
		case c.State.Carries():
			c.Silent, c.Quiet = f.unanswered(at, 3), f.unanswered(at, 1)
			if at-f.lastDelivery > idleTimeout {
				cl.disconnect(c, pathsel.Failed, now)
			} else if c.Silent && !wasSilent {
				f.window, f.threshold = minWindow, max(minWindow, f.threshold/2)
			}
		case c.State == pathsel.Parked:
			if alive {
				f.lastDelivery = at // its keep-alives are answered
			}
			c.Silent = at-f.lastDelivery > time.Second
			c.Quiet = c.Silent
		}
	}
	c.BytesRead = uint64(c.read())
	c.Outstanding = 0
	if c.State.Carries() && c.flow != nil {
		inFlight := c.flow.window * packet
		c.Outstanding = 1 + int(2*inFlight/(16<<10))
	}
	c.meter = c.meter.Add(pathsel.Sample{
		At: now, State: c.State, Outstanding: c.Outstanding,
		BytesRead: c.BytesRead, RTT: c.RTT,
	})
	c.Slots = c.meter.Slots
}

func (cl *client) disconnect(c *conn, to pathsel.State, now time.Time) {
	if c.flow != nil {
		c.before += c.flow.delivered
	}
	c.flow = nil
	c.State, c.Since, c.RTT = to, now, 0
	if to == pathsel.Failed {
		c.Failures++
		c.RetryAt = now.Add(pathsel.RetryDelay(c.Failures))
	}
}

func (cl *client) carryOut(s *simulation, d pathsel.Decision, at time.Duration) {
	now := epoch.Add(at)
	n := slices.IndexFunc(cl.conns, func(c *conn) bool { return c.Key == d.Key })
	if n < 0 {
		panic("decision for an unknown path: " + d.Key.String())
	}
	c := cl.conns[n]
	switch d.Action {
	case pathsel.Open, pathsel.Probe, pathsel.Return:
		next := pathsel.Active
		if d.Action == pathsel.Probe {
			next = pathsel.Probing
		}
		if c.State == pathsel.Parked || c.State.Carries() {
			if !c.State.Carries() {
				c.flow.start(at)
			}
			c.State, c.Since = next, now
			return
		}
		c.then = next
		c.flow = newFlow(s.route(c.Path))
		c.State, c.Since, c.began = pathsel.Opening, now, at
		c.ready = at + time.Duration(2*c.flow.rtt()*float64(time.Second))
	case pathsel.Close:
		cl.disconnect(c, pathsel.Idle, now)
	case pathsel.Fail:
		cl.disconnect(c, pathsel.Failed, now)
	case pathsel.Park:
		c.State, c.Since, c.flow.running = pathsel.Parked, now, false
	}
}
