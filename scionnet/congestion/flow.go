package congestion

import (
	"fmt"
	"time"
)

// Algorithm is the name of a congestion controller, as users write it.
type Algorithm string

const (
	BBR     Algorithm = "bbr"
	NewReno Algorithm = "newreno"
)

// ParseAlgorithm reads a name.
func ParseAlgorithm(s string) (Algorithm, error) {
	switch a := Algorithm(s); a {
	case BBR, NewReno:
		return a, nil
	}
	return "", fmt.Errorf("congestion controller %q: must be %s or %s", s, BBR, NewReno)
}

// Config is what a Flow needs to know at its start.
type Config struct {
	Algorithm  Algorithm // "" stands for BBR
	PacketSize int       // largest packet of the connection in bytes; 0: 1252
	Seed       uint64    // spreads the probes of flows over time; any value, different for each flow
}

// Packet is an acknowledged or lost packet. If its size is 0, the flow forgets the packet and
// learns nothing from it.
type Packet struct {
	Number int64
	Size   int
}

// Snapshot is a Flow at one moment, for samples and metrics.
type Snapshot struct {
	State        string        // "startup", "cruise", "slow start", ...
	Window       int           // bytes
	PacingRate   float64       // bytes a second
	DeliveryRate float64       // what the path has delivered lately, smoothed, bytes a second; 0: not measured
	Bandwidth    float64       // what the path was found to carry, bytes a second; 0: it was never full
	RTT, MinRTT  time.Duration // of the last sample; the least that counts now
	PacketsSent  uint64
	PacketsLost  uint64 // declared lost, also those that arrive later after all
	BytesSent    uint64
	BytesLost    uint64
	BytesAcked   uint64
}

// initialWindow is the window of a new flow in packets (RFC 9002, section 7.2).
const initialWindow = 10

// minWindow in packets keeps acknowledgements coming: a receiver acknowledges every second packet
// at once, and a smaller window waits for its timer instead.
const minWindow = 4

// maxWindow in bytes bounds the memory that a receiver with false acknowledgements can cost us.
const maxWindow = 64 << 20

// firstRTT stands for the round trip until one is measured (RFC 9002, section 6.2.2, has 333 ms:
// its aim is to avoid needless retransmissions, ours to start).
const firstRTT = 100 * time.Millisecond

// Flow is the congestion controller of one connection. Its methods must not run at the same time as
// each other; [Group] says what flows of one group share.
type Flow struct {
	algorithm  algorithm
	packetSize int
	sampler    sampler
	pacer      pacer
	blocked    time.Duration // when the window last had no room
	snapshot   Snapshot
}

// An algorithm turns what a Flow has measured into a window and a rate.
type algorithm interface {
	// onSent hears of each packet; inflight is that before it.
	onSent(now time.Duration, inflight int, appLimited bool)
	onAck(event)
	window() int
	pacingRate() float64
	state() string
	setPacketSize(int)
}

// New returns the controller of a new connection.
func New(c Config) *Flow {
	if c.PacketSize <= 0 {
		c.PacketSize = 1252
	}
	f := &Flow{packetSize: c.PacketSize}
	switch c.Algorithm {
	case NewReno:
		f.algorithm = newReno(c.PacketSize)
	default:
		f.algorithm = newBBR(c.PacketSize, c.Seed)
	}
	return f
}

// OnSent records an ack-eliciting packet. inflight is the number of bytes in flight, with this
// packet.
func (f *Flow) OnSent(now time.Duration, number int64, size, inflight int) {
	before := max(0, inflight-size)
	f.notice(now, before)
	f.algorithm.onSent(now, before, f.sampler.appLimited())
	f.sampler.sent(now, number, size, inflight)
	f.pacer.sent(now, size, f.PacingRate(), f.packetSize)
	f.snapshot.PacketsSent++
	f.snapshot.BytesSent += uint64(size)
	if inflight >= f.Window() {
		f.blocked = now
	}
}

// OnAck records the packets that one acknowledgement or one timer has shown to be acknowledged or
// lost. inflight is the number of bytes in flight before it.
func (f *Flow) OnAck(now time.Duration, acked, lost []Packet, inflight int) {
	f.notice(now, inflight)
	e := f.sampler.acked(now, acked, lost, inflight)
	for _, l := range lost {
		if l.Size > 0 {
			f.snapshot.PacketsLost++
		}
	}
	f.snapshot.BytesLost += uint64(e.lost)
	f.snapshot.BytesAcked += uint64(e.acked)
	if e.rtt > 0 {
		f.snapshot.RTT = e.rtt
		if f.snapshot.MinRTT == 0 || e.rtt < f.snapshot.MinRTT {
			f.snapshot.MinRTT = e.rtt
		}
	}
	if e.rate > 0 {
		if f.snapshot.DeliveryRate == 0 {
			f.snapshot.DeliveryRate = e.rate
		}
		f.snapshot.DeliveryRate += (e.rate - f.snapshot.DeliveryRate) / 8
	}
	f.algorithm.onAck(e)
}

// notice finds out whether the application, or a machine too busy to send, keeps the flow below its
// allowance: then window and pacing have both had room for longer than a burst can make up for.
func (f *Flow) notice(now time.Duration, inflight int) {
	switch {
	case inflight+f.packetSize > f.Window():
		f.blocked = now
	case now-max(f.blocked, f.pacer.next) > f.pacer.burst(f.PacingRate(), f.packetSize):
		f.sampler.limit(inflight)
	}
}

// CanSend says whether the window has room for a packet.
func (f *Flow) CanSend(inflight int) bool { return inflight < f.Window() }

// HasBudget says whether pacing lets a packet go now.
func (f *Flow) HasBudget(now time.Duration) bool { return f.pacer.open <= now }

// NextSend is when the sender should look again after HasBudget has said no.
func (f *Flow) NextSend() time.Duration { return f.pacer.look }

// Window is the number of bytes that may be in flight.
func (f *Flow) Window() int {
	return min(max(f.algorithm.window(), minWindow*f.packetSize), maxWindow)
}

// PacingRate in bytes a second.
func (f *Flow) PacingRate() float64 {
	return min(max(f.algorithm.pacingRate(), minRate), maxRate)
}

// SetPacketSize changes the size of the largest packet.
func (f *Flow) SetPacketSize(bytes int) {
	if bytes > 0 {
		f.packetSize = bytes
		f.algorithm.setPacketSize(bytes)
	}
}

// Snapshot returns the state and the counters.
func (f *Flow) Snapshot() Snapshot {
	s := f.snapshot
	s.State, s.Window, s.PacingRate = f.algorithm.state(), f.Window(), f.PacingRate()
	if b, ok := f.algorithm.(*bbr); ok && b.start.filled {
		s.Bandwidth = b.bandwidth.now()
	}
	return s
}
