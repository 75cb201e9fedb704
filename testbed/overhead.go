package testbed

import (
	"fmt"

	"braid/pathsel"
)

// Overhead of packets, in bytes.
const (
	scionUDPBytes = 48 // common and address header with IPv4 hosts (36), path meta header (4), UDP (8)
	infoBytes     = 8  // info field, one a segment
	hopBytes      = 12 // hop field, one an AS and segment
	quicBytes     = 35 // short header, packet number, AEAD tag, STREAM frame header, a share of control frames
	quicPacketMax = 1452
	ipUDPBytes    = 28    // IPv4 and UDP
	tcpBytes      = 52    // IPv4, TCP, and its time stamps (RFC 7323)
	blockBytes    = 16384 // BitTorrent's block; a piece message adds 13 bytes to it (BEP 3)
	messageBytes  = 13
)

// PathHeader returns the size in bytes of the SCION and UDP headers of a packet on the path. Going
// up, through the core, and down takes a segment each, with a hop field for each AS
// (draft-dekater-scion-dataplane). An AS where two segments meet has a hop field in both. At a
// peering link segments do not meet.
func PathHeader(t Topology, interfaces []pathsel.Interface) (int, error) {
	if len(interfaces) == 0 {
		return scionUDPBytes - 4, nil // the empty path has no meta header either
	}
	links := map[pathsel.Interface]Link{}
	for _, l := range t.Links {
		links[l.A.Interface], links[l.B.Interface] = l, l
	}
	last := "" // segment
	segments, crossed := 0, 0
	enter := func(segment string) {
		if segment != last {
			segments++
		}
		last = segment
	}
	for i := 0; i < len(interfaces); i += 2 {
		l, ok := links[interfaces[i]]
		if !ok {
			return 0, fmt.Errorf("interface %s is not in topology %s", interfaces[i], t.Name)
		}
		crossed++
		switch {
		case l.Type == Peer:
			// The hop field of each side belongs to its own segment, which may be of this AS alone.
			enter("up")
			enter("down")
			crossed-- // it is in no segment
		case l.Type == Core:
			enter("core")
		case l.B.Interface == interfaces[i]:
			enter("up")
		default:
			enter("down")
		}
	}
	hops := crossed + segments // a segment has one more than links
	return scionUDPBytes + infoBytes*segments + hopBytes*hops, nil
}

// Packet is a full packet of a transfer: bytes of BitTorrent's stream, and all headers around them.
type Packet struct{ payload, headers int }

// QUICPacket is one of QUIC, with that header before QUIC's. The MTU is that of SCION or of IP.
func QUICPacket(mtu, header int) Packet {
	return Packet{min(mtu-header, quicPacketMax) - quicBytes, header + quicBytes}
}

// QUICOnIP is one of QUIC on IP.
func QUICOnIP(mtu int) Packet { return QUICPacket(mtu, ipUDPBytes) }

// TCPPacket is one of TCP.
func TCPPacket(mtu int) Packet { return Packet{mtu - tcpBytes, tcpBytes} }

// A packet of WebRTC: pion/sctp puts up to 1200 bytes of a message into a packet of its own size,
// whatever the MTU.
const (
	sctpPayload = 1200
	sctpBytes   = 28 // common header and header of a DATA chunk (RFC 9260); a SACK chunk has as many
	dtlsBytes   = 37 // record header, explicit nonce and tag of AES-GCM (RFC 6347, RFC 5288)
)

// WebRTCPacket is one of a data channel of WebRTC on IP.
var WebRTCPacket = Packet{sctpPayload, sctpBytes + dtlsBytes + ipUDPBytes}

// blockShare is the part of BitTorrent's stream that is a torrent's bytes.
const blockShare = float64(blockBytes) / (blockBytes + messageBytes)

// PayloadShare returns the part of a link's rate that is left for a torrent's bytes. Rates of the
// testbed count whole packets of SCION or IP.
func (p Packet) PayloadShare() float64 {
	return float64(p.payload) / float64(p.payload+p.headers) * blockShare
}

// packetsPerAck: all protocols acknowledge every second packet (RFC 9000, section 13.2.2; RFC 5681,
// section 4.2; RFC 9260, section 6.2).
const packetsPerAck = 2

// AckLoad returns the load of acknowledgements on the way back, in bits per bit of a torrent's
// bytes.
func (p Packet) AckLoad() float64 {
	return float64(p.headers) / (packetsPerAck * float64(p.payload) * blockShare)
}
