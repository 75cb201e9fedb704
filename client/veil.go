package client

import (
	"bytes"
	"context"
	"io"
	"sync"

	"github.com/anacrolix/torrent/mse"
)

// veiled is a wire whose peer may obfuscate what it says (message stream encryption). It ends here, below the gate, so that a
// gate sees every message, and nobody gets past its bounds by a veil. The engine itself knows of none.
//
// The keys are the info hashes that the peer may mean. Only a wire without a key of its own has use for this: the others
// are encrypted.
type veiled struct {
	Wire
	keys  mse.SecretKeyIter
	begun sync.Once
	r     io.Reader
	w     io.Writer
	err   error
}

// unveil lifts the veil from an accepted wire, if there is one. The first Read does, before which nothing may be written.
func unveil(w Wire, keys mse.SecretKeyIter) Wire {
	if w.Key() != nil {
		return w
	}
	return &veiled{Wire: w, keys: keys}
}

// veil puts one over a wire that we have opened.
func veil(ctx context.Context, w Wire, key []byte) (Wire, error) {
	rw, _, err := mse.InitiateHandshakeContext(ctx, struct {
		io.Reader
		io.Writer
	}{w, w}, key, nil, mse.AllSupportedCrypto)
	if err != nil {
		return nil, err
	}
	v := &veiled{Wire: w, r: rw, w: rw}
	v.begun.Do(func() {})
	return v, nil
}

func (v *veiled) Read(b []byte) (int, error) {
	v.begun.Do(v.begin)
	if v.err != nil {
		return 0, v.err
	}
	return v.r.Read(b)
}

func (v *veiled) Write(b []byte) (int, error) { return v.w.Write(b) }

// begin reads as much as it takes to see whether there is a veil.
func (v *veiled) begin() {
	v.r, v.w = v.Wire, v.Wire
	head := make([]byte, len(protocolName))
	n := 0
	for n < len(head) && string(head[:n]) == protocolName[:n] {
		var m int
		if m, v.err = v.Wire.Read(head[n:]); v.err != nil {
			return
		}
		n += m
	}
	seen := io.MultiReader(bytes.NewReader(head[:n]), v.Wire)
	if string(head[:n]) == protocolName {
		v.r = seen
		return
	}
	rw, _, err := mse.ReceiveHandshake(context.Background(), struct {
		io.Reader
		io.Writer
	}{seen, v.Wire}, v.keys, mse.DefaultCryptoSelector)
	if v.err = err; err == nil {
		v.r, v.w = rw, rw
	}
}
