package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"sync"

	"github.com/anacrolix/torrent/mse"
)

// obfuscated is a connection over which the peer may obfuscate the protocol (message stream
// encryption). Obfuscation ends below the filter, so that no peer can hide messages from its
// bounds. The engine itself never obfuscates.
//
// Only connections without a key of their own can be obfuscated: the others are encrypted.
type obfuscated struct {
	Conn
	keys  mse.SecretKeyIter // the info hashes that the peer may use
	begun sync.Once
	r     io.Reader
	w     io.Writer
	err   error
}

// obfuscate begins obfuscation on a connection that we have opened.
func obfuscate(ctx context.Context, c Conn, key []byte) (Conn, error) {
	below := readWriter{c, c}
	rw, _, err := mse.InitiateHandshakeContext(ctx, below, key, nil, mse.AllSupportedCrypto)
	if err != nil {
		return nil, err
	}
	o := &obfuscated{Conn: c, r: rw, w: rw}
	o.begun.Do(func() {})
	return o, nil
}

type readWriter struct {
	io.Reader
	io.Writer
}

// Read finds out at first whether the peer obfuscates. Nothing may be written before that.
func (o *obfuscated) Read(b []byte) (int, error) {
	o.begun.Do(o.begin)
	if o.err != nil {
		return 0, o.err
	}
	return o.r.Read(b)
}

func (o *obfuscated) Write(b []byte) (int, error) { return o.w.Write(b) }

// begin reads until it is clear whether the stream begins with a plain handshake.
func (o *obfuscated) begin() {
	// The buffer is so small that later reads bypass it.
	in := bufio.NewReaderSize(o.Conn, len(protocolName))
	o.r, o.w = in, o.Conn
	head, err := in.Peek(len(protocolName))
	if err == nil && string(head) != protocolName {
		var rw io.ReadWriter
		below, choose := readWriter{in, o.Conn}, mse.DefaultCryptoSelector
		if rw, _, err = mse.ReceiveHandshake(context.Background(), below, o.keys, choose); err == nil {
			o.r, o.w = rw, rw
		}
	}
	o.err = err
}

// v2Bit is in the last of the reserved bytes of a handshake (BEP 52). The engine offers v2, because
// it sees the v2 half of a hybrid when it checks the info hash. The peer could then answer with the
// v2 hash and ask for hashes, which braid does not have. So the filter clears the bit.
const v2Bit = 0x10

// hideBits clears the bits of the peer's handshake (BEP 3) that mean nothing to us. The engine
// keeps a counter for each combination that it has ever seen.
func hideBits(handshake []byte) {
	// Extended messages (BEP 10), the fast extension (BEP 6), port messages (BEP 5).
	known := [8]byte{5: 0x10, 7: 0x04 | 0x01}
	bits := handshake[len(protocolName):handshakeHead]
	for i := range bits {
		bits[i] &= known[i]
	}
}

// withoutYourIP removes the entry "yourip" from an extended handshake (BEP 10) of the engine. Its
// value is a synthetic address that means nothing to the peer. The entry is the last one of the
// payload, since keys are sorted.
func withoutYourIP(payload string) (message []byte, changed bool) {
	const key = "6:yourip16:"
	rest := len(payload) - len("e") - 16 - len(key)
	if rest < 0 || payload[rest:rest+len(key)] != key {
		return nil, false
	}
	message = binary.BigEndian.AppendUint32(nil, uint32(1+1+rest+1))
	message = append(append(message, msgExtended, 0), payload[:rest]...)
	return append(message, 'e'), true
}
