// Package sim runs path selectors in simulated time over a simulated network.
//
// The model is a fluid in small steps of time. Each connection has a congestion window that grows
// and shrinks as in NewReno. Its data waits in the queues of the links on its path. Each queue is
// first-in first-out and bounded, and drops the excess. Queues lengthen the round trip, and drops
// shrink the window one round trip later. Clients build views, ask their selector and carry out its
// plan as the real client does. All randomness comes from one seed: equal Scenarios give equal
// Results.
//
// It is not a packet simulator: it has no bursts, reordering, lost acknowledgements or order of
// blocks. It shows in milliseconds what a selector does to rates over seconds and minutes.
package sim

import (
	"time"

	"braid/pathsel"
)

// Condition is the state of a link at one time.
type Condition struct {
	Rate  float64 // bits per second of packets; 0 is a link that carries nothing
	Loss  float64 // probability from 0 to 1 that a packet is lost
	Cross float64 // bits per second of traffic without congestion control
	// Down loses all packets and notifies the sender (revocation, SCMP). Silent notifies nobody.
	Down, Silent bool
}

// Change is the condition of a link from a given time on.
type Change struct {
	At time.Duration
	Condition
}

// Link is one direction of a link between two ASes: the one in which the data flows. The other
// direction is never full.
type Link struct {
	A, B  pathsel.Interface // its ends, as they stand in the paths, in either order
	Delay time.Duration     // one way
	Queue float64           // bytes; 0: as much as the link carries in 100 ms, at least 64 packets
	Condition
	Changes []Change // in the order of time
}

const (
	packet = 1400.0 // bytes on a link
	// PayloadShare is the part of a packet that is payload of the download.
	PayloadShare = 0.9
)

// epoch is when every simulation begins.
var epoch = time.Unix(1_000_000_000, 0).UTC()

// NewLink makes a link between the interfaces with the same ID of two ASes.
func NewLink(a, b pathsel.IA, id uint64, mbits float64, delay time.Duration) Link {
	return Link{
		A: pathsel.Interface{IA: a, ID: id}, B: pathsel.Interface{IA: b, ID: id},
		Delay: delay, Condition: Condition{Rate: mbits * 1e6},
	}
}

// PathOver returns the path over these links, in the order from the downloading end. It announces
// its latency and bandwidth.
func PathOver(links ...Link) pathsel.Path {
	p := pathsel.Path{MTU: packet, LatencyKnown: true}
	for _, l := range links {
		p.Interfaces = append(p.Interfaces, l.A, l.B)
		p.Latency += l.Delay
		if r := uint64(l.Rate); p.Bandwidth == 0 || r < p.Bandwidth {
			p.Bandwidth = r
		}
	}
	p.Fingerprint = pathsel.FingerprintOf(p.Interfaces)
	p.Src, p.Dst = p.Interfaces[0].IA, p.Interfaces[len(p.Interfaces)-1].IA
	return p
}

// link is the running state of a Link.
type link struct {
	Link
	now     Condition
	next    int
	queued  float64 // bytes, cross traffic included
	arrived float64 // in this step
	accept  float64 // part of what arrived that fits
	drain   float64 // part of the queue that leaves
	downAt  time.Duration
}

func (l *link) advance(at time.Duration) {
	for l.next < len(l.Changes) && l.Changes[l.next].At <= at {
		was := l.now
		l.now = l.Changes[l.next].Condition
		if l.now.Down && !was.Down {
			l.downAt = at
		}
		l.next++
	}
}

func (l *link) dead() bool { return l.now.Down || l.now.Silent || l.now.Rate <= 0 }

// delay returns how long the queue takes to drain, in seconds.
func (l *link) delay() float64 {
	if l.now.Rate <= 0 {
		return 0
	}
	return l.queued * 8 / l.now.Rate
}

// admit computes the part of this step's arrivals that fits, then the part of the queue that
// leaves.
func (l *link) admit(dt float64) {
	arrived, out := l.arrived+l.now.Cross/8*dt, l.now.Rate/8*dt
	if l.dead() {
		l.accept, l.drain = 0, 1
		l.queued, l.arrived = 0, 0
		return
	}
	free := max(0, l.Queue+out-l.queued)
	l.accept = 1
	if arrived > free {
		l.accept = free / arrived
	}
	l.queued += arrived * l.accept
	l.drain = 1
	if l.queued > out {
		l.drain = out / l.queued
	}
	l.queued -= l.queued * l.drain
	l.arrived = 0
}
