package client

import (
	"encoding/binary"
	"slices"
)

// What the tests' peers say: messages of BEP 3, BEP 6 and BEP 10, written by hand.

const (
	msgChoke       = 0
	msgHave        = 4
	msgBitfield    = 5
	msgRequest     = 6
	msgPiece       = 7
	msgCancel      = 8
	msgSuggest     = 0x0d
	msgHaveAll     = 0x0e
	msgHaveNone    = 0x0f
	msgReject      = 0x10
	msgAllowedFast = 0x11
	msgExtended    = 20
	msgHashRequest = 21
	msgHashes      = 22
	msgHashReject  = 23

	protocolName  = "\x13BitTorrent protocol"
	handshakeSize = len(protocolName) + 8 + 20 + 20

	extendedHello = "d1:md11:ut_metadatai3eee"
	askMetadata   = "d8:msg_typei0e5:piecei0ee"
)

var choke, unchoke, interested = raw(msgChoke), raw(1), raw(2)

// block is what a request asks for.
type block struct{ index, begin, length uint32 }

// raw is a message of that type.
func raw(kind byte, body ...byte) []byte {
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+1)), kind), body...)
}

func u32(values ...uint32) (b []byte) {
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

func extended(id byte, payload string) []byte {
	return raw(msgExtended, append([]byte{id}, payload...)...)
}

// encode makes a message of that type for each block.
func encode(kind byte, blocks ...block) (out []byte) {
	for _, b := range blocks {
		out = slices.Concat(out, raw(kind, u32(b.index, b.begin, b.length)...))
	}
	return out
}
