// Package quic names the QUIC implementation of the data plane. Nothing else in braid does, so that another one is a
// change to this file.
//
// It is a fork of quic-go, because quic-go has no interface for congestion control, and its NewReno stays far below
// the rate of a path that is long and loses packets. The fork keeps close to quic-go: beside the interface it adds what
// hides that a client is not a browser, all of it off by default. It is pinned to one commit. HTTP/3 and scionproto stay
// with quic-go itself: they need no other congestion control, and both can live in one process.
//
// What to know of the fork:
//   - It is based on quic-go v0.61.0. Later releases have published no security fix that it lacks. They relax the
//     reordering threshold after spurious losses, which the fork does not.
//   - ConnectionStats.PacketsLost and BytesLost are counted by its own congestion controller: with another one they
//     stay 0, so scionnet's controllers count for themselves.
//   - As in quic-go no packet is larger than 1452 bytes, by a constant.
package quic

import (
	"slices"
	"time"

	"github.com/apernet/quic-go"
	quiccc "github.com/apernet/quic-go/congestion"
	"github.com/apernet/quic-go/monotime"

	"braid/scionnet/congestion"
)

// Connections, and what makes them.
type (
	Transport            = quic.Transport
	Listener             = quic.Listener
	Conn                 = quic.Conn
	Stream               = quic.Stream
	Config               = quic.Config
	ClientInfo           = quic.ClientInfo
	ConnectionStats      = quic.ConnectionStats
	OOBCapablePacketConn = quic.OOBCapablePacketConn
)

// Version1 is QUIC as in RFC 9000.
const Version1 = quic.Version1

// Version of QUIC.
type Version = quic.Version

// How connections end.
type (
	ApplicationError      = quic.ApplicationError
	ApplicationErrorCode  = quic.ApplicationErrorCode
	StreamError           = quic.StreamError
	StreamErrorCode       = quic.StreamErrorCode
	TransportError        = quic.TransportError
	IdleTimeoutError      = quic.IdleTimeoutError
	HandshakeTimeoutError = quic.HandshakeTimeoutError
	StatelessResetError   = quic.StatelessResetError
)

// ConnectionRefused is the transport error of an acceptor that has no room (RFC 9000, section 20.1).
const ConnectionRefused = quic.ConnectionRefused

// A Controller decides when a connection sends. Its methods are those of [congestion.Flow], and are called one at a time.
type Controller interface {
	OnSent(now time.Duration, number int64, size, inflight int)
	OnAck(now time.Duration, acked, lost []congestion.Packet, inflight int)
	CanSend(inflight int) bool
	HasBudget(now time.Duration) bool
	NextSend() time.Duration
	Window() int
	SetPacketSize(bytes int)
}

// Control puts a controller in the place of the connection's own. Call it before there is data to send.
func Control(c *Conn, to Controller) { c.SetCongestionControl(&control{to: to}) }

// control is a Controller as quic-go sees it. quic-go calls it from one goroutine.
type control struct {
	to          Controller
	acked, lost []congestion.Packet // of the acknowledgement or timer that is being worked through
}

var _ quiccc.CongestionControlEx = (*control)(nil)

// since is a moment of quic-go's as the Controller counts time.
func since(t monotime.Time) time.Duration { return time.Duration(t) }

func (c *control) OnPacketSent(now monotime.Time, inflight quiccc.ByteCount, n quiccc.PacketNumber, size quiccc.ByteCount, ackEliciting bool) {
	if ackEliciting {
		c.to.OnSent(since(now), int64(n), int(size), int(inflight))
	}
}

func (c *control) OnPacketAcked(n quiccc.PacketNumber, size, _ quiccc.ByteCount, _ monotime.Time) {
	c.acked = append(c.acked, congestion.Packet{Number: int64(n), Size: int(size)})
}

// OnCongestionEvent hears of a lost packet; of size 0, of congestion marks (ECN), which SCION does not carry.
func (c *control) OnCongestionEvent(n quiccc.PacketNumber, size, _ quiccc.ByteCount) {
	if size > 0 {
		c.lost = append(c.lost, congestion.Packet{Number: int64(n), Size: int(size)})
	}
}

// OnCongestionEventEx ends what one acknowledgement or timer has to say. What is lost beyond the packets that
// OnCongestionEvent was told of are probes of path MTU discovery: they say nothing of congestion.
func (c *control) OnCongestionEventEx(inflight quiccc.ByteCount, now monotime.Time, _ []quiccc.AckedPacketInfo, lost []quiccc.LostPacketInfo) {
	if len(lost) > len(c.lost) {
		for _, p := range lost {
			if n := int64(p.PacketNumber); !slices.ContainsFunc(c.lost, func(l congestion.Packet) bool { return l.Number == n }) {
				c.lost = append(c.lost, congestion.Packet{Number: n}) // of size 0: to be forgotten
			}
		}
	}
	if len(c.acked)+len(c.lost) > 0 {
		c.to.OnAck(since(now), c.acked, c.lost, int(inflight))
	}
	c.acked, c.lost = c.acked[:0], c.lost[:0]
}

func (c *control) CanSend(inflight quiccc.ByteCount) bool { return c.to.CanSend(int(inflight)) }
func (c *control) HasPacingBudget(now monotime.Time) bool { return c.to.HasBudget(since(now)) }
func (c *control) TimeUntilSend(quiccc.ByteCount) monotime.Time {
	return monotime.Time(c.to.NextSend())
}
func (c *control) GetCongestionWindow() quiccc.ByteCount { return quiccc.ByteCount(c.to.Window()) }

func (c *control) SetMaxDatagramSize(size quiccc.ByteCount) {
	c.to.SetPacketSize(int(size))
}

func (c *control) SetRTTStatsProvider(quiccc.RTTStatsProvider) {}
func (c *control) MaybeExitSlowStart()                         {}
func (c *control) OnRetransmissionTimeout(bool)                {}
func (c *control) InSlowStart() bool                           { return false } // for logs of quic-go only
func (c *control) InRecovery() bool                            { return false }
