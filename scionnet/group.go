package scionnet

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
)

// Group is a secret of several hosts, as a key pair of their own certificate authority. An identity
// in a group (Identity.In) connects only to others in it, in both directions. TLS proves the
// membership: the certificate of a member is signed with the group's key, and the signature of the
// handshake (RFC 8446, section 4.4.3) binds the certificate to the connection. So nobody in the
// middle can pass a proof on, and no byte of the application is sent before both proofs.
type Group struct{ key ed25519.PrivateKey }

// minGroupSecret is the least length of a group's secret in bytes. A stranger who connects sees a
// signature of the group, with which guesses of the secret can be tested, so it must not be
// guessable.
const minGroupSecret = 16

// NewGroup returns the group with that secret, which must be random or stretched.
func NewGroup(secret []byte) (*Group, error) {
	if len(secret) < minGroupSecret {
		return nil, fmt.Errorf("secret of a group: %d bytes, want at least %d", len(secret), minGroupSecret)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "braid group 1", ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("make the key of a group: %w", err)
	}
	return &Group{ed25519.NewKeyFromSeed(seed)}, nil
}

// ErrNotInGroup says that a host does not have the secret of the group.
var ErrNotInGroup = errors.New("the other side does not have the key of this transfer")

// In returns the identity of this host in a group. It stays the same for the same group. Its key
// tells nobody outside of the group which host it is.
func (id *Identity) In(g *Group) (*Identity, error) {
	public := g.key.Public().(ed25519.PublicKey)
	seed, err := hkdf.Key(sha256.New, id.key.Seed(), public, "braid member 1", ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("make the key of a member: %w", err)
	}
	return newIdentity(ed25519.NewKeyFromSeed(seed), g)
}

// Group returns the group of the identity, or nil.
func (id *Identity) Group() *Group { return id.group }

// admits returns an error unless the certificate is that of a member.
func (g *Group) admits(c *x509.Certificate) error {
	key := g.key.Public().(ed25519.PublicKey)
	if c.SignatureAlgorithm != x509.PureEd25519 || !ed25519.Verify(key, c.RawTBSCertificate, c.Signature) {
		return ErrNotInGroup
	}
	return nil
}
