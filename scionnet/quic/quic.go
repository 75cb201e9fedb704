// Package quic names the QUIC implementation of the data plane, and puts braid's congestion
// controllers into it. Nothing else in braid names it, so that another one is a change to this
// package.
//
// It is a fork of quic-go, because quic-go has no interface for congestion control, and its NewReno
// stays far below the rate of a path that is long and loses packets. The fork keeps close to
// quic-go: beside the interface it adds what hides that a client is not a browser, all of it off by
// default. It is pinned to one commit. HTTP/3 and scionproto stay with quic-go itself: they need no
// other congestion control, and both can live in one process.
//
// What to know of the fork:
//   - It is based on quic-go v0.61.0. Later releases have published no security fix that it lacks.
//     They relax the reordering threshold after spurious losses, which the fork does not.
//   - ConnectionStats.PacketsLost and BytesLost are counted by its own congestion controller: with
//     another one they stay 0, so scionnet's controllers count for themselves.
//   - As in quic-go no packet is larger than 1452 bytes, by a constant.
package quic

import "github.com/apernet/quic-go"

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

// ConnectionRefused is the transport error of an acceptor that has no room (RFC 9000, section
// 20.1).
const ConnectionRefused = quic.ConnectionRefused
