package quic

import (
	"slices"
	"sync"
	"time"

	quiccc "github.com/apernet/quic-go/congestion"
	"github.com/apernet/quic-go/monotime"

	"braid/scionnet/congestion"
)

// Group couples the controllers of one host whose connections cross the same inter-domain links.
type Group struct {
	mu    sync.Mutex
	group *congestion.Group
}

// NewGroup returns an empty group.
func NewGroup() *Group { return &Group{group: congestion.NewGroup()} }

// Controller is the congestion controller of one connection. QUIC calls it from the connection's
// goroutine; others look at it, and tell it along which links the connection goes.
type Controller struct {
	group *Group // nil on IP, where links are not known

	mu          sync.Mutex
	flow        *congestion.Flow
	joined      joined
	acked, lost []congestion.Packet // of the acknowledgement or timer that is being worked through
}

// joined is how much of a connection's path its group knows.
type joined int

const (
	notJoined   joined = iota
	joinedFirst        // the link by which it leaves this AS
	joinedAll
	left // the connection has ended
)

// NewController returns the controller of a new connection.
func NewController(c congestion.Config, g *Group) *Controller {
	return &Controller{group: g, flow: congestion.New(c)}
}

// Govern takes the place of the connection's own controller. Call it before there is data to send.
func (k *Controller) Govern(c *Conn) { c.SetCongestionControl((*control)(k)) }

// Resume has the connection start at what its path has carried lately; see congestion.Flow.Resume.
func (k *Controller) Resume(rate float64, rtt time.Duration, full bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flow.Resume(rate, rtt, full)
}

// Hint tells the controller what others say that the path carries, in bytes a second.
func (k *Controller) Hint(rate float64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flow.Hint(rate)
}

// Announce tells the controller the announced rate of the path's narrowest link, in bytes a second.
func (k *Controller) Announce(rate float64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flow.Announce(rate)
}

// Snapshot is the state of the controller.
func (k *Controller) Snapshot() congestion.Snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flow.Snapshot()
}

// Join says that the connection crosses these links: all of its path, or only the first one.
func (k *Controller) Join(links []congestion.Link, all bool) {
	how := joinedFirst
	if all {
		how = joinedAll
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.joined >= how {
		return
	}
	k.joined = how
	k.group.mu.Lock()
	defer k.group.mu.Unlock()
	k.group.group.Join(k.flow, links)
}

// Leave says that the connection has ended.
func (k *Controller) Leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.joined != notJoined {
		k.group.mu.Lock()
		defer k.group.mu.Unlock()
		k.group.group.Leave(k.flow)
	}
	k.joined = left
}

// control is a Controller as quic-go sees it. quic-go calls it from one goroutine.
type control Controller

var _ quiccc.CongestionControlEx = (*control)(nil)

// since is a moment of quic-go's as the controller counts time.
func since(t monotime.Time) time.Duration { return time.Duration(t) }

func (k *control) OnPacketSent(now monotime.Time, inflight quiccc.ByteCount, n quiccc.PacketNumber,
	size quiccc.ByteCount, ackEliciting bool) {
	if ackEliciting {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.flow.OnSent(since(now), int64(n), int(size), int(inflight))
	}
}

func (k *control) OnPacketAcked(n quiccc.PacketNumber, size, _ quiccc.ByteCount, _ monotime.Time) {
	k.acked = append(k.acked, congestion.Packet{Number: int64(n), Size: int(size)})
}

// OnCongestionEvent hears of a lost packet; of size 0, of congestion marks (ECN), which SCION does
// not carry, and which packets on IP do not ask for.
func (k *control) OnCongestionEvent(n quiccc.PacketNumber, size, _ quiccc.ByteCount) {
	if size > 0 {
		k.lost = append(k.lost, congestion.Packet{Number: int64(n), Size: int(size)})
	}
}

// OnCongestionEventEx ends the report of one acknowledgement or timer. Lost packets that
// OnCongestionEvent has not reported are probes of path MTU discovery. They say nothing about
// congestion.
func (k *control) OnCongestionEventEx(inflight quiccc.ByteCount, now monotime.Time,
	_ []quiccc.AckedPacketInfo, lost []quiccc.LostPacketInfo) {
	if len(lost) > len(k.lost) {
		for _, p := range lost {
			n := int64(p.PacketNumber)
			known := slices.ContainsFunc(k.lost, func(l congestion.Packet) bool { return l.Number == n })
			if !known {
				k.lost = append(k.lost, congestion.Packet{Number: n}) // of size 0: to be forgotten
			}
		}
	}
	if len(k.acked)+len(k.lost) > 0 {
		k.onAck(since(now), int(inflight))
	}
	k.acked, k.lost = k.acked[:0], k.lost[:0]
}

func (k *control) onAck(now time.Duration, inflight int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.joined == joinedFirst || k.joined == joinedAll {
		k.group.mu.Lock()
		defer k.group.mu.Unlock()
	}
	k.flow.OnAck(now, k.acked, k.lost, inflight)
}

func (k *control) CanSend(inflight quiccc.ByteCount) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flow.CanSend(int(inflight))
}

func (k *control) HasPacingBudget(now monotime.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flow.HasBudget(since(now))
}

func (k *control) TimeUntilSend(quiccc.ByteCount) monotime.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return monotime.Time(k.flow.NextSend())
}

func (k *control) GetCongestionWindow() quiccc.ByteCount {
	k.mu.Lock()
	defer k.mu.Unlock()
	return quiccc.ByteCount(k.flow.Window())
}

func (k *control) SetMaxDatagramSize(size quiccc.ByteCount) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flow.SetPacketSize(int(size))
}

func (k *control) SetRTTStatsProvider(quiccc.RTTStatsProvider) {}
func (k *control) MaybeExitSlowStart()                         {}
func (k *control) OnRetransmissionTimeout(bool)                {}
func (k *control) InSlowStart() bool                           { return false } // for logs of quic-go only
func (k *control) InRecovery() bool                            { return false }
