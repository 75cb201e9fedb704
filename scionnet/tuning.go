package scionnet

import (
	"fmt"
	"time"

	"braid/pathsel"
	"braid/scionnet/quic"
)

// ALPN is the protocol of path-level peers with its version. The dialler opens one bidirectional
// stream. Each side first sends one byte of feature bits, which the other may ignore, and then its
// data. Bit 0 says that the host understands frames (bundle.go), and bits 2 to 7 what the dialler
// expects to receive (hint.go).
const ALPN = "braid/1"

const (
	// leastPacket is the size that QUIC needs to open a connection (RFC 9000, section 14).
	leastPacket = 1200
	// mostPacket is the largest packet of quic-go, a constant of its own.
	mostPacket = 1452

	// handshakeIdle ends a handshake without any answer; twice that ends every unfinished one.
	handshakeIdle = 5 * time.Second
	// idleTimeout is the silence after which the path or the peer counts as gone. If it were
	// shorter, a router that stops for some seconds would cost connections; if it were longer, dead
	// paths would count as alive.
	idleTimeout = 8 * time.Second
	// keepAlive is the silence after which a connection asks for a sign of life. The answer
	// distinguishes a peer without data from a path that drops everything. If it were longer,
	// pathsel.Silence would notice dead paths after more than a second; if it were shorter, idle
	// connections would cost more than two small packets per second.
	keepAlive = 500 * time.Millisecond
	// keepAliveRate is about how many signs of life per second an endpoint requests at most. If
	// 2000 connections ask after every keepAlive, both ends together waste a quarter of a core, and
	// on a busy machine connections are lost.
	keepAliveRate = 1000

	// maxWindow is the flow-control window. 500 Mbit/s over a round trip of 100 ms needs 6.25 MB,
	// and quic-go enlarges the window only when half of it has been read, so it is twice that. It
	// starts at firstWindow and doubles while the application keeps up, which bounds the memory
	// that a peer can fill with unread data. quic-go does not double it in slow start on a long
	// path, so it begins with what 40 Mbit/s need over 120 ms until the first losses are repaired.
	maxWindow   = 12 << 20
	firstWindow = 2 << 20
)

// quicConfig is the configuration of a connection with packets of that size. Acknowledgements
// cannot be tuned: quic-go sends one for every second packet, or after 25 ms, and combines those of
// one batch. Nor can ECN: quic-go tries it on the first packets and stops, since SCION does not
// carry it (fastConn).
func quicConfig(packetSize int) *quic.Config {
	return &quic.Config{
		// Both ends are braid, so only the tested version is offered.
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
		// SCION announces a path's MTU, and mtu.go checks it. quic-go's own discovery would start
		// each connection at 1200 bytes and never lower the size.
		InitialPacketSize:       uint16(packetSize),
		DisablePathMTUDiscovery: true,
	}
}

// keepAliveAmong is the keep-alive period of each connection if there are conns of them. Above half
// of the idle timeout, a single lost packet could end a connection.
func keepAliveAmong(conns int) time.Duration {
	return min(max(keepAlive, time.Duration(conns)*time.Second/keepAliveRate), idleTimeout/2)
}

// packetSize is the size of QUIC packets on a path, after a header of that length.
func packetSize(p pathsel.Path, header int) (int, error) {
	if p.MTU < leastPacket+header {
		return 0, fmt.Errorf("path %s carries packets of %d bytes, QUIC needs %d and the headers %d",
			p.Fingerprint.Short(), p.MTU, leastPacket, header)
	}
	return min(p.MTU-header, mostPacket), nil
}
