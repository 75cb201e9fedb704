package dht

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

const (
	// tokenLife is how long one secret makes tokens. Its tokens are accepted for as long again, so
	// a token is good for five to ten minutes (BEP 5).
	tokenLife = 5 * time.Minute
	tokenLen  = 8
)

// tokens proves that the sender of a message receives at the address from which it sends: it
// repeats bytes that were sent there. They follow from the address, so nothing has to be
// remembered.
type tokens struct{ secret [16]byte }

func (t *tokens) at(epoch int64, a Addr) string {
	h := hmac.New(sha256.New, t.secret[:])
	h.Write(a.AppendCompact(binary.LittleEndian.AppendUint64(nil, uint64(epoch))))
	return string(h.Sum(nil)[:tokenLen])
}

func epochOf(now time.Time) int64 { return now.UnixNano() / int64(tokenLife) }

// give returns the token for an address.
func (t *tokens) give(now time.Time, a Addr) string { return t.at(epochOf(now), a) }

// valid reports whether a token was given to an address lately.
func (t *tokens) valid(now time.Time, a Addr, token string) bool {
	if len(token) != tokenLen {
		return false
	}
	e := epochOf(now)
	return hmac.Equal([]byte(token), []byte(t.at(e, a))) || hmac.Equal([]byte(token), []byte(t.at(e-1, a)))
}
