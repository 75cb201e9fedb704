package dht

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"slices"
	"strconv"
)

// Limits of an item in bytes (BEP 44).
const (
	maxItem = 1000
	maxSalt = 64
)

// Item is a small value that nodes keep (BEP 44). An immutable one is named by the hash of its
// value, a mutable one by its owner's key and a salt. A query for an item has only Seq, the number
// of the item that its sender has.
type Item struct {
	Value     []byte // bencoded
	Key       ed25519.PublicKey
	Salt      []byte
	Seq       int64
	Signature []byte
	// CAS, in a put, is the sequence number that the item must have to be replaced; nil: any.
	CAS *int64
}

// Mutable reports whether the item has an owner.
func (i *Item) Mutable() bool { return len(i.Key) > 0 }

// Target is the item's name.
func (i *Item) Target() ID {
	if !i.Mutable() {
		return hashOf(i.Value)
	}
	return hashOf(slices.Concat(i.Key, i.Salt))
}

// signed are the bytes that the owner signs.
func (i *Item) signed() []byte {
	var b []byte
	if len(i.Salt) > 0 {
		b = fmt.Appendf(b, "4:salt%d:%s", len(i.Salt), i.Salt)
	}
	b = append(strconv.AppendInt(append(b, "3:seqi"...), i.Seq, 10), "e1:v"...)
	return append(b, i.Value...)
}

// Sign makes the item a mutable one of the key's owner.
func (i *Item) Sign(key ed25519.PrivateKey) {
	i.Key = key.Public().(ed25519.PublicKey)
	i.Signature = ed25519.Sign(key, i.signed())
}

// Verify reports whether an item belongs at a target. An immutable one is right if its hash is, a
// mutable one if its owner has signed it.
func (i *Item) Verify(target ID) bool {
	return i.Target() == target && (!i.Mutable() || ed25519.Verify(i.Key, i.signed(), i.Signature))
}

func (i *Item) wire() wireItem {
	w := wireItem{CAS: i.CAS, K: string(i.Key), Salt: string(i.Salt), Sig: string(i.Signature), V: i.Value}
	if i.Mutable() || i.Value == nil {
		w.Seq = &i.Seq
	}
	return w
}

// A badItem says why an item is refused, with BEP 44's error code.
type badItem struct {
	code int
	text string
}

func (e *badItem) Error() string { return e.text }

// readItem checks the sizes.
func readItem(w wireItem) (*Item, error) {
	i := &Item{Value: w.V, Salt: []byte(w.Salt), CAS: w.CAS}
	switch {
	case len(i.Value) == 0:
		return nil, &badItem{ErrProtocol, "an item without a value"}
	case len(i.Value) > maxItem:
		return nil, &badItem{ErrTooBig, "the value is larger than 1000 bytes"}
	case len(i.Salt) > maxSalt:
		return nil, &badItem{ErrSalt, "the salt is larger than 64 bytes"}
	case w.K == "":
		i.Salt = nil
		return i, nil
	case len(w.K) != ed25519.PublicKeySize || len(w.Sig) != ed25519.SignatureSize || w.Seq == nil:
		return nil, &badItem{ErrProtocol, "a mutable item needs k, seq and sig"}
	}
	i.Key, i.Signature, i.Seq = ed25519.PublicKey(w.K), []byte(w.Sig), *w.Seq
	return i, nil
}

// replaces decides whether an item takes the place of another one with its name; nil: it does.
func (i *Item) replaces(old *Item) *badItem {
	if old == nil || !i.Mutable() {
		return nil
	}
	switch {
	case i.CAS != nil && *i.CAS != old.Seq:
		return &badItem{ErrCAS, "the item has another sequence number than cas"}
	case i.Seq < old.Seq, i.Seq == old.Seq && !bytes.Equal(i.Value, old.Value):
		return &badItem{ErrOldSeq, "a newer item is stored"}
	}
	return nil
}
