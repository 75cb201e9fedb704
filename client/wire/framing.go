package wire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

// framing follows one direction of a BitTorrent connection (BEP 3): the handshake, then messages,
// each with its length in front. It finds where messages begin and reads their beginnings, however
// the bytes are divided into reads.
type framing struct {
	begun   bool   // the handshake was seen
	foreign bool   // the stream does not begin with a BitTorrent handshake and cannot be followed
	fast    bool   // the handshake offers the fast extension (BEP 6)
	old     bool   // the peer ID is of a Transmission that does not answer cancels
	ours    bool   // the peer ID is of the engine that braid uses
	whole   bool   // bitfields and extended handshakes are buffered and read as a whole
	rest    uint64 // bytes of the present message that are still to come
	drop    bool   // these bytes are dropped
}

// verdict is what happens to a message.
type verdict int

const (
	pass   verdict = iota // it goes on as it is
	drop                  // it does not go on
	hold                  // the scan stops before it, and it is given again
	refuse                // the scan stops before it, and the connection has to end
)

// Message types that a filter reads (BEP 3, BEP 6).
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
	msgPort          = 9
	msgSuggest       = 0x0d
	msgHaveAll       = 0x0e
	msgHaveNone      = 0x0f
	msgReject        = 0x10
	msgAllowedFast   = 0x11
	msgExtended      = 20
	msgHashRequest   = 21
	msgHashes        = 22
	msgHashReject    = 23
	msgUnknown       = 0xff
)

var (
	blockKinds = []byte{msgRequest, msgCancel, msgReject} // messages with a block
	plainKinds = []byte{                                  // messages with nothing but a type
		msgChoke, msgUnchoke, msgInterested, msgNotInterested, msgHaveAll, msgHaveNone,
	}
)

const (
	protocolName  = "\x13BitTorrent protocol"
	handshakeSize = len(protocolName) + 8 + 20 + 20
	handshakeHead = len(protocolName) + 8 // up to the info hash
	blockHead     = 4 + 1 + 3*4           // length, type, and a block
	pieceHead     = 4 + 1 + 2*4           // a piece message up to its data
	extendedHead  = 4 + 1 + 1             // an extended message (BEP 10) up to its payload
	// metadataHead is how far into the payload of a metadata message (BEP 9) its type is searched.
	// The keys of a dictionary are sorted, and the type's is the first in BEP 9.
	metadataHead = 64
)

// block is a part of a piece, as requests name it.
type block struct{ index, begin, length uint32 }

// message is the beginning of a message, as far as a filter reads it. Keep-alives have no type, and
// most types have no block.
type message struct {
	kind      byte
	keepAlive bool
	size      uint64 // of the whole message, in bytes
	block     block
	// extension is the number that the receiver gave to the extension of an extended message; 0 is
	// the handshake.
	extension byte
	answer    bool   // it says that it is an answer to a request for metadata
	question  bool   // it says that it is a request for metadata
	metadata  bool   // it begins as the engine and braid begin metadata messages
	pieces    int    // in a bitfield that was seen whole
	greeting  string // the payload of an extended handshake that was seen whole
}

// plain makes a message that has only a type.
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

// haves makes a "have" message for each piece.
func haves(pieces ...int) []byte {
	var b []byte
	for _, p := range pieces {
		b = append(b, 0, 0, 0, 5, msgHave)
		b = binary.BigEndian.AppendUint32(b, uint32(p))
	}
	return b
}

// scan goes over the next bytes of the stream. It calls keep for each message that begins in them,
// to decide what happens to it. If stop is true, it ends at the first boundary between messages.
//
// It returns the number of bytes that it has consumed, and the drops, which are the ranges of these
// bytes that do not pass. The other bytes must be given again, with more: they are an incomplete
// beginning of a message, a held message, or lie behind the boundary. stopped tells whether the
// scan ended because of stop or keep.
func (f *framing) scan(
	b []byte, stop bool, keep func(message) verdict,
) (consumed int, drops []span, stopped bool) {
	i := 0
	for {
		if f.rest > 0 {
			n := min(f.rest, uint64(len(b)-i))
			if f.drop && n > 0 {
				drops = append(drops, span{i, i + int(n)})
			}
			i += int(n)
			f.rest -= n
		}
		if f.rest > 0 {
			return i, drops, false
		}
		if stop && f.begun {
			return i, drops, true
		}
		rest := b[i:]
		if !f.begun {
			if n := min(len(rest), len(protocolName)); string(rest[:n]) != protocolName[:n] {
				f.foreign = true
				return i, drops, true
			}
			if len(rest) < handshakeSize {
				return i, drops, false
			}
			f.begun, f.drop, f.rest = true, false, uint64(handshakeSize)
			f.fast = rest[handshakeHead-1]&4 != 0
			id := rest[handshakeSize-20 : handshakeSize]
			f.old, f.ours = isOldTransmission(id), bytes.HasPrefix(id, []byte("-GT"))
			continue
		}
		m, ok := begin(rest)
		greets := m.kind == msgExtended && m.extension == 0 && m.size >= extendedHead
		if ok && f.whole && (m.kind == msgBitfield || greets) {
			ok = uint64(len(rest)) >= m.size
			switch {
			case ok && greets:
				m.greeting = string(rest[extendedHead:m.size])
			case ok:
				m.pieces = ones(rest[5:m.size])
			}
		}
		if !ok {
			return i, drops, false
		}
		switch v := keep(m); v {
		case hold, refuse:
			return i, drops, true
		default:
			f.rest, f.drop = m.size, v == drop
		}
	}
}

func ones(b []byte) (n int) {
	for _, x := range b {
		n += bits.OnesCount8(x)
	}
	return n
}

// isOldTransmission tells whether a peer ID is of a Transmission before 4.0. It supports the fast
// extension, but answers a cancel with neither a reject nor the block. The engine expects that.
func isOldTransmission(id []byte) bool {
	return bytes.HasPrefix(id, []byte("-TR")) && id[7] == '-' && id[3] < '4'
}

// begin reads the beginning of a message; ok is false while too little of it is there.
func begin(b []byte) (m message, ok bool) {
	if len(b) < 4 {
		return m, false
	}
	n := binary.BigEndian.Uint32(b)
	m.size = 4 + uint64(n)
	if n == 0 {
		m.keepAlive = true
		return m, true
	}
	if len(b) < 5 {
		return m, false
	}
	m.kind = b[4]
	be := binary.BigEndian
	switch {
	case m.kind == msgPiece && m.size >= pieceHead:
		if len(b) < pieceHead {
			return m, false
		}
		m.block = block{be.Uint32(b[5:]), be.Uint32(b[9:]), n - (pieceHead - 4)}
	case m.size == blockHead && slices.Contains(blockKinds, m.kind):
		if len(b) < blockHead {
			return m, false
		}
		m.block = block{be.Uint32(b[5:]), be.Uint32(b[9:]), be.Uint32(b[13:])}
	case m.kind == msgHave && m.size == 9:
		if len(b) < 9 {
			return m, false
		}
		m.block.index = binary.BigEndian.Uint32(b[5:])
	case m.kind == msgExtended && m.size >= extendedHead:
		head := min(m.size, extendedHead+metadataHead)
		if uint64(len(b)) < head {
			return m, false
		}
		m.extension = b[5]
		m.metadata = bytes.HasPrefix(b[extendedHead:head], []byte("d8:msg_type"))
		says := func(kind string) bool {
			return bytes.Contains(b[extendedHead:head], []byte("8:msg_typei"+kind+"e"))
		}
		m.question, m.answer = says("0"), says("1") || says("2")
	case m.size == 5 && slices.Contains(plainKinds, m.kind):
	case m.size == 9 && (m.kind == msgSuggest || m.kind == msgAllowedFast):
	case m.kind == msgBitfield || m.kind >= msgHashRequest && m.kind <= msgHashReject:
	default:
		m.kind = msgUnknown // or its length is wrong for its type, which the engine finds, too
	}
	return m, true
}

type span struct{ from, to int }

// without removes the spans, which are in order, from b in place.
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
