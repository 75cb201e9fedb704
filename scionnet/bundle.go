package scionnet

import (
	"encoding/binary"
)

// Large packets, part of wire format braid/1.
//
// quic-go makes no packet larger than 1452 bytes. If a path carries larger ones, several QUIC
// packets travel in one datagram, in a frame:
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+---------------+-------------------------------+
//	|     kind      |  0, ignored   |             size              |
//	+---------------+---------------+-------------------------------+
//	| content ...
//
//	kind 1, bundle  QUIC packets of size bytes each, at least 1200; the last one has 1 to size bytes.
//	                The receiver treats each like a packet that came alone.
//	kind 2, probe   eight bytes that the answer repeats, and zeros; size bytes in all, with the
//	                frame header.
//	kind 3, answer  the size and the eight bytes of a probe that has arrived.
//
// The two highest bits of the kind are clear. In every QUIC packet one of them is set (RFC 9000,
// section 17: the header form or the fixed bit), so the two cannot be confused. Other kinds are
// reserved and dropped.
//
// A host that understands frames says so in the feature byte (bit 0) with which each side of a
// connection begins. Once both sides have said so, each sends a probe of the size that the path
// should carry. When the answer arrives, it sends bundles of up to that size. So bundles are only
// sent where large packets arrive. The acceptor does not know the MTU of the dialler's path and
// probes with the size of the dialler's probe. A host that does not understand frames gets none;
// it would drop them, since they are no QUIC packets.
//
// A frame is accepted only on routes with a connection on which the receiver has announced frames:
// a datagram of many packets costs the receiver much more than the sender. For the same reason a
// bundle of small packets is dropped; QUIC fills all packets of a batch except the last. Frames
// are not authenticated, but QUIC protects the packets in them: an attacker who can forge a bundle
// can forge single packets, too. An answer must repeat the random bytes of the probe.
const (
	frameHeader = 4
	kindBundle  = 1
	kindProbe   = 2
	kindAnswer  = 3
	tokenLen    = 8

	// featureBundles is the feature bit of a host that understands frames.
	featureBundles = 1
)

// isFrame tells a frame from a QUIC packet.
func isFrame(b []byte) bool { return len(b) > 0 && b[0]&0xc0 == 0 }

// frame is a parsed frame. packets and token point into the received bytes.
type frame struct {
	kind    byte
	size    int
	packets []byte // of a bundle
	token   []byte // of a probe or answer
}

// readFrame parses a frame. ok is false if b does not have the format of a frame.
func readFrame(b []byte) (f frame, ok bool) {
	if len(b) <= frameHeader {
		return frame{}, false
	}
	f = frame{kind: b[0], size: int(binary.BigEndian.Uint16(b[2:]))}
	switch body := b[frameHeader:]; f.kind {
	case kindBundle:
		f.packets = body
		return f, f.size >= leastPacket
	case kindProbe:
		// A probe that was cut off proves nothing about its size.
		if len(body) < tokenLen || f.size != len(b) {
			return frame{}, false
		}
		f.token = body[:tokenLen]
		return f, true
	case kindAnswer:
		if len(body) != tokenLen {
			return frame{}, false
		}
		f.token = body
		return f, true
	}
	return frame{}, false
}

// next removes the first packet of a bundle and returns it.
func (f *frame) next() []byte {
	n := min(f.size, len(f.packets))
	p := f.packets[:n]
	f.packets = f.packets[n:]
	return p
}

func putFrame(b []byte, kind byte, size int) {
	b[0], b[1] = kind, 0
	binary.BigEndian.PutUint16(b[2:], uint16(size))
}

// bundled is the number of packets of that size that fit one datagram with a payload of at most
// limit bytes.
func bundled(size, limit int) int {
	if size < leastPacket || limit < frameHeader+2*size {
		return 1
	}
	return (limit - frameHeader) / size
}
