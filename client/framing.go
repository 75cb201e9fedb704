package client

import "encoding/binary"

// framing follows one direction of a BitTorrent connection (BEP 3): the handshake, then messages of a length and as many
// bytes. It finds where messages begin and what the short ones say, in whatever portions the bytes come. A stream
// that does not begin as BitTorrent does, because it is obfuscated, is opaque: it has no boundaries.
type framing struct {
	begun  bool   // the handshake's beginning was seen
	opaque bool   // nothing is known of what follows
	fast   bool   // the handshake offers the fast extension (BEP 6)
	left   uint64 // bytes of the present message that are still to come
	drop   bool   // and they are dropped
}

// Message types that a gate looks at (BEP 3, BEP 6).
const (
	msgChoke         = 0
	msgUnchoke       = 1
	msgInterested    = 2
	msgNotInterested = 3
	msgHave          = 4
	msgBitfield      = 5
	msgRequest       = 6
	msgPiece         = 7
	msgCancel        = 8
	msgSuggest       = 0x0d
	msgHaveAll       = 0x0e
	msgHaveNone      = 0x0f
	msgReject        = 0x10
	msgAllowedFast   = 0x11
)

const (
	protocolName  = "\x13BitTorrent protocol"
	handshakeSize = len(protocolName) + 8 + 20 + 20
	handshakeHead = len(protocolName) + 8 // as far as it is looked at
	blockHead     = 4 + 1 + 3*4           // length, type, and a block
	pieceHead     = 4 + 1 + 2*4           // a piece message up to its data
)

// block is what a request asks for.
type block struct{ index, begin, length uint32 }

// message is the beginning of one, as far as a gate looks at it. Other types have no block, keep-alives no type.
type message struct {
	kind      byte
	keepAlive bool
	block     block
}

// plain is a message that consists of its type.
func plain(kind byte) []byte { return []byte{0, 0, 0, 1, kind} }

// encode makes a message of that type for each block.
func encode(kind byte, blocks ...block) []byte {
	var b []byte
	for _, x := range blocks {
		b = append(b, 0, 0, 0, blockHead-4, kind)
		b = binary.BigEndian.AppendUint32(b, x.index)
		b = binary.BigEndian.AppendUint32(b, x.begin)
		b = binary.BigEndian.AppendUint32(b, x.length)
	}
	return b
}

// haves makes a message for each piece.
func haves(pieces []uint32) []byte {
	var b []byte
	for _, p := range pieces {
		b = append(b, 0, 0, 0, 5, msgHave)
		b = binary.BigEndian.AppendUint32(b, p)
	}
	return b
}

// scan goes over the next bytes of the stream. keep is called for each message that begins in them and tells whether it
// passes. With stop the scan ends at the first boundary between messages. Consumed are the bytes that were gone over: the
// rest are the beginning of a message that has to be seen whole, or lie behind the boundary, and must be given again,
// with more. Of those consumed, what is in drops does not pass. Stopped tells whether the scan ended because of stop.
func (f *framing) scan(b []byte, stop bool, keep func(message) bool) (consumed int, drops []span, stopped bool) {
	i := 0
	for {
		if f.left > 0 {
			n := min(f.left, uint64(len(b)-i))
			if f.drop && n > 0 {
				drops = append(drops, span{i, i + int(n)})
			}
			i += int(n)
			f.left -= n
		}
		if f.opaque {
			return len(b), drops, false
		}
		if f.left > 0 {
			return i, drops, false
		}
		if stop && f.begun {
			return i, drops, true
		}
		rest := b[i:]
		if !f.begun {
			if n := min(len(rest), len(protocolName)); string(rest[:n]) != protocolName[:n] {
				f.opaque = true
				continue
			}
			if len(rest) < handshakeHead {
				return i, drops, false
			}
			f.begun, f.drop, f.left = true, false, uint64(handshakeSize)
			f.fast = rest[handshakeHead-1]&4 != 0
			continue
		}
		m, size, ok := begin(rest)
		if !ok {
			return i, drops, false
		}
		f.left, f.drop = size, !keep(m)
	}
}

// begin reads the beginning of a message, if enough of it is there.
func begin(b []byte) (m message, size uint64, ok bool) {
	if len(b) < 4 {
		return m, 0, false
	}
	n := binary.BigEndian.Uint32(b)
	size = 4 + uint64(n)
	if n == 0 {
		return message{keepAlive: true}, size, true
	}
	if len(b) < 5 {
		return m, 0, false
	}
	m.kind = b[4]
	switch {
	case m.kind == msgPiece && size >= pieceHead:
		if len(b) < pieceHead {
			return m, 0, false
		}
		m.block = block{binary.BigEndian.Uint32(b[5:]), binary.BigEndian.Uint32(b[9:]), n - (pieceHead - 4)}
	case (m.kind == msgRequest || m.kind == msgCancel || m.kind == msgReject) && size == blockHead:
		if len(b) < blockHead {
			return m, 0, false
		}
		m.block = block{binary.BigEndian.Uint32(b[5:]), binary.BigEndian.Uint32(b[9:]), binary.BigEndian.Uint32(b[13:])}
	case size != 5 && m.kind <= msgNotInterested:
		m.kind = 0xff // not what its type says; the engine will object
	}
	return m, size, true
}

// span is a range of bytes.
type span struct{ from, to int }

// without takes the spans, which are in order, out of b. The bytes behind them move up.
func without(b []byte, drops []span) []byte {
	if len(drops) == 0 {
		return b
	}
	out := b[:drops[0].from]
	for i, d := range drops {
		to := len(b)
		if i+1 < len(drops) {
			to = drops[i+1].from
		}
		out = append(out, b[d.to:to]...)
	}
	return out
}
