package scionnet

import (
	"encoding/binary"
)

// Large packets, part of wire format braid/1.
//
// quic-go makes no packet larger than 1452 bytes. Where a path carries larger ones, several QUIC
// packets travel in one datagram, in a frame:
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+---------------+-------------------------------+
//	|     kind      |  0, ignored   |             size              |
//	+---------------+---------------+-------------------------------+
//	| what belongs to the kind ...
//
//	kind 1, bundle  QUIC packets of size bytes each, at least 1200, the last one of 1 to size bytes. The receiver
//	                takes each as if it had come alone.
//	kind 2, probe   eight bytes that an answer repeats, and zeros up to size bytes in all, frame header included.
//	kind 3, answer  the size and the eight bytes of a probe that has arrived.
//
// The two highest bits of the kind are clear. In every QUIC packet one of them is set (RFC 9000,
// section 17: the header form or the fixed bit), which keeps the two apart; kinds not listed are
// reserved and dropped.
//
// A host that understands frames says so in the feature byte (bit 0) with which each side of a
// connection begins. Who has said it and has heard it sends a probe of the size that the path
// should carry, and sends bundles of up to that size when the answer has come: so bundles only ever
// go where large packets arrive. The acceptor, who does not know the MTU of the dialler's path,
// probes with the size of the probe that has reached it. A host that knows nothing of frames gets
// none, and would drop them as no packets of QUIC.
//
// Frames count only from where a connection is on which the receiver has said that it understands
// them: a datagram of many packets costs many times what the sender pays for it. For the same
// reason a bundle of small packets is dropped; QUIC fills all its packets but the last of a batch.
// What a frame does not protect, QUIC does: whoever can forge a bundle can forge a packet, and an
// answer is only taken with the bytes of the probe.
const (
	frameHeader = 4
	kindBundle  = 1
	kindProbe   = 2
	kindAnswer  = 3
	tokenLen    = 8

	// featureBundles is the bit of the feature byte.
	featureBundles = 1
)

// isFrame tells a frame from a QUIC packet.
func isFrame(b []byte) bool { return len(b) > 0 && b[0]&0xc0 == 0 }

// frame is one that has been read. packets and token point into it.
type frame struct {
	kind    byte
	size    int
	packets []byte // of a bundle
	token   []byte // of a probe or answer
}

// readFrame reads a frame; ok is false for anything that does not keep to the format.
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
		// What is cut off was not carried.
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

// next takes the next packet off a bundle.
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

// bundled is how many packets of that size go into one datagram whose payload is at most limit
// bytes.
func bundled(size, limit int) int {
	if size < leastPacket || limit < frameHeader+2*size {
		return 1
	}
	return (limit - frameHeader) / size
}
