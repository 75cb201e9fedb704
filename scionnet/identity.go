package scionnet

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// PeerKey is the Ed25519 public key of a peer. It identifies the peer at all its addresses, for as
// long as the peer keeps its identity. It is comparable.
type PeerKey [ed25519.PublicKeySize]byte

// String is the key in hexadecimal digits.
func (k PeerKey) String() string { return hex.EncodeToString(k[:]) }

// MarshalText writes the form of String.
func (k PeerKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// WrongKeyError says that the host at an address has another key than the expected one.
type WrongKeyError struct{ Want, Got PeerKey }

func (e *WrongKeyError) Error() string {
	return fmt.Sprintf("peer answered with key %s, want %s", e.Got, e.Want)
}

// Identity is a host's Ed25519 key pair. All its connections prove possession of it, so that a peer
// can tell which of them belong together.
type Identity struct {
	key   ed25519.PrivateKey
	cert  tls.Certificate
	group *Group // nil: it connects to everybody
}

// NewIdentity makes an identity that lives in memory only.
func NewIdentity() (*Identity, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate identity: %w", err)
	}
	return newIdentity(key, nil)
}

// LoadIdentity reads the identity in the PEM file (PKCS #8) of that name. If there is no such file,
// it makes an identity and writes it, readable by its owner only. It refuses a file that others can
// read, or that is damaged: replacing the key would silently change the identity.
func LoadIdentity(name string) (*Identity, error) {
	key, err := LoadKey(name)
	if err != nil {
		return nil, err
	}
	return newIdentity(key, nil)
}

// LoadKey reads or makes a private key as LoadIdentity does.
func LoadKey(name string) (ed25519.PrivateKey, error) {
	key, err := readKey(name)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = createKey(name)
	}
	if err != nil {
		return nil, fmt.Errorf("load identity %s: %w", name, err)
	}
	return key, nil
}

func readKey(name string) (ed25519.PrivateKey, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	// On Windows, every file has the mode 0444 or 0666, whoever may read it.
	if perm := info.Mode().Perm(); perm&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("others can read the private key (mode %04o); run chmod 600 on it", perm)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	key, err := decodeKey(b)
	if err != nil {
		return nil, fmt.Errorf("%w; restore it from a backup, or move it away to get a new identity", err)
	}
	return key, nil
}

const pemType = "PRIVATE KEY"

func decodeKey(b []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(b)
	if block == nil || block.Type != pemType {
		return nil, fmt.Errorf("no PEM block %q found", pemType)
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("damaged key: %w", err)
	}
	key, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("key is a %T, want Ed25519", k)
	}
	return key, nil
}

func createKey(name string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	// The key is written to a temporary file that is then linked. A crash leaves no half of a key
	// behind, and if two processes start at once, the second takes the identity of the first.
	f, err := os.CreateTemp(filepath.Dir(name), ".identity-*")
	if err != nil {
		return nil, createError(err)
	}
	defer os.Remove(f.Name())
	err = pem.Encode(f, &pem.Block{Type: pemType, Bytes: der})
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, createError(err)
	}
	if err := os.Link(f.Name(), name); errors.Is(err, fs.ErrExist) {
		return readKey(name)
	} else if err != nil {
		return nil, createError(err)
	}
	return key, nil
}

// createError is a system's error without the name of the temporary file, which says nothing to a
// user.
func createError(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	} else if e, ok := errors.AsType[*os.LinkError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("create the file: %w", err)
}

// newIdentity makes an identity in a group or, with nil, in none. Its certificate is signed with
// the group's key or its own. Peers read only the key in it and, in a group, the signature. The
// dates satisfy strict parsers.
func newIdentity(key ed25519.PrivateKey, g *Group) (*Identity, error) {
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "braid"},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280, 4.1.2.5: no expiry
	}
	issuer, signer := leaf, key
	if g != nil {
		issuer, signer = &x509.Certificate{Subject: pkix.Name{CommonName: "braid group"}}, g.key
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, issuer, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	return &Identity{key: key, cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, group: g}, nil
}

// Key is the public key.
func (id *Identity) Key() PeerKey { return PeerKey(id.key.Public().(ed25519.PublicKey)) }

// TLS is the configuration for both ends of a connection: TLS 1.3, our certificate, and any peer
// that proves possession of an Ed25519 key or, if want is not nil, of that key. Without a group
// there is no authority: a peer's key only shows that it is the same peer as before.
func (id *Identity) TLS(alpn string, want *PeerKey) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{id.cert},
		NextProtos:   []string{alpn},
		// Nobody checks the name; without one, TLS would send the address.
		ServerName:             "braid",
		InsecureSkipVerify:     true, // there is no chain; VerifyConnection checks the key
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true, // a resumed session would skip the proof of the key
		VerifyConnection: func(s tls.ConnectionState) error {
			got, err := KeyOf(s)
			if err != nil {
				return err
			}
			if id.group != nil {
				if err := id.group.admits(s.PeerCertificates[0]); err != nil {
					return err
				}
			}
			if want != nil && got != *want {
				return &WrongKeyError{Want: *want, Got: got}
			}
			return nil
		},
	}
}

// KeyOf is the key whose possession the peer has proved in the handshake.
func KeyOf(s tls.ConnectionState) (PeerKey, error) {
	if len(s.PeerCertificates) != 1 {
		return PeerKey{}, fmt.Errorf("peer sent %d certificates, want 1", len(s.PeerCertificates))
	}
	pub, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return PeerKey{}, fmt.Errorf("peer's key is a %T, want Ed25519", s.PeerCertificates[0].PublicKey)
	}
	return PeerKey(pub), nil
}
