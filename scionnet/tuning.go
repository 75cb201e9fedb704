package scionnet

import (
	"fmt"
	"time"

	"braid/pathsel"
	"braid/scionnet/quic"
)

// ALPN is the protocol of path-level peers, and its version: one bidirectional stream opened by the
// dialler, on which each side first sends one byte of feature bits, which the other may ignore, and
// then whatever it likes.
const ALPN = "braid/1"

const (
	// leastPacket is what QUIC needs to open a connection (RFC 9000, section 14).
	leastPacket = 1200
	// mostPacket is the largest packet that quic-go makes, by a constant of its own.
	mostPacket = 1452

	// handshakeIdle ends a handshake that nobody answers; twice as long ends any that has not
	// finished.
	handshakeIdle = 5 * time.Second
	// idleTimeout is when silence means that the path or the peer is gone. Shorter, and a router
	// that stops for some seconds costs connections that would have gone on; longer, and a dead
	// path is held for alive.
	idleTimeout = 8 * time.Second
	// keepAlive is how long nothing arrives before a sign of life is asked for. A path that drops
	// everything is told from a peer that has nothing to send by the answer: longer, and it is
	// noticed later than after a second (pathsel.Silence); shorter, and idle connections cost more
	// than two small packets a second.
	keepAlive = 500 * time.Millisecond
	// keepAliveRate bounds the signs of life that an endpoint asks for: about so many a second in
	// all its connections. With 2000 connections that ask every keepAlive, both ends together spend
	// a quarter of a core on nothing, and on a machine that has no more to give connections die of
	// it.
	keepAliveRate = 1000

	// maxWindow is the flow-control window: 500 Mbit/s over a round trip of 100 ms is 6.25 MB, and
	// quic-go opens the window further only when half of it has been read, so twice that. It starts
	// at firstWindow and doubles while the application keeps up, which bounds what a peer can make
	// us hold that sends without being read.
	maxWindow   = 12 << 20
	firstWindow = 1 << 20
)

// quicConfig is the configuration of a connection that sends packets of that size. Acknowledgements
// cannot be tuned: quic-go sends one for every second packet, or after 25 ms, and joins those of
// one batch that it has read. Nor can ECN, which it tries on the first packets and gives up, as
// SCION does not carry it (fastConn).
func quicConfig(packetSize int) *quic.Config {
	return &quic.Config{
		// The one that is measured and tested here: both ends are braid, nothing is to be
		// negotiated.
		Versions:                       []quic.Version{quic.Version1},
		HandshakeIdleTimeout:           handshakeIdle,
		MaxIdleTimeout:                 idleTimeout,
		KeepAlivePeriod:                keepAlive,
		InitialStreamReceiveWindow:     firstWindow,
		MaxStreamReceiveWindow:         maxWindow,
		InitialConnectionReceiveWindow: firstWindow,
		MaxConnectionReceiveWindow:     maxWindow,
		// One stream, for the whole life of the connection.
		MaxIncomingStreams:    1,
		MaxIncomingUniStreams: -1,
		// SCION tells a path's MTU, and mtu.go watches whether it is true: quic-go's own discovery
		// would begin with 1200 bytes at every connection, and never goes down again.
		InitialPacketSize:       uint16(packetSize),
		DisablePathMTUDiscovery: true,
	}
}

// keepAliveAmong is how long nothing arrives on one of so many connections before a sign of life is
// asked for. Above half of the idle timeout, one that is lost could end the connection.
func keepAliveAmong(conns int) time.Duration {
	return min(max(keepAlive, time.Duration(conns)*time.Second/keepAliveRate), idleTimeout/2)
}

// packetSize is the size of QUIC packets on a path with that MTU and header.
func packetSize(p pathsel.Path, header int) (int, error) {
	if p.MTU < leastPacket+header {
		return 0, fmt.Errorf("path %s carries packets of %d bytes, QUIC needs %d and the headers %d", p.Fingerprint.Short(), p.MTU, leastPacket, header)
	}
	return min(p.MTU-header, mostPacket), nil
}
