// Package send has the common parts of braid send and braid get: the line, which the one prints and
// the other reads, and the state that a sender keeps between two runs.
//
//	Line   who has the data, which data it is, and the key that proves the right to it (line.go)
//	Stash  the key, the torrent and the ports of a sender, so that its line stays the same (stash.go)
//	Reach  the addresses of a sender that go into the line (reach.go)
//	Files  the files of a send, and when they no longer change (stash.go)
//	News   the newest line of a sender whose files change (news.go)
package send

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/anacrolix/torrent/metainfo"
	"golang.org/x/crypto/argon2"

	"braid/client"
	"braid/scionnet"
)

// Key is the secret in a line. Nobody can connect to the sender without it: see scionnet.Group.
type Key [16]byte

// NewKey returns a random key.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// MinPhrase is the least length of a phrase in bytes.
const MinPhrase = 12

// KeyOf returns the key for a phrase of the user's. Argon2id (RFC 9106, section 4, second
// recommendation) makes each guess cost 64 MiB and a fraction of a second.
func KeyOf(phrase string) (k Key, err error) {
	if len(phrase) < MinPhrase {
		return k, fmt.Errorf("the key has %d bytes, want at least %d", len(phrase), MinPhrase)
	}
	copy(k[:], argon2.IDKey([]byte(phrase), []byte("braid send key 1"), 3, 64<<10, 4, uint32(len(k))))
	return k, nil
}

// Line has everything that a receiver needs.
type Line struct {
	Key      Key
	InfoHash metainfo.Hash // zero: the addresses are those of News
	Peers    []client.Peer // addresses of the sender, the best first
}

// The text of a line is Prefix and, in base 32, the key, the info hash, the addresses and a CRC-32
// of all text and bytes before it. Base 32 has letters and digits of one case only: it survives
// mail, chats and URLs, and a double click marks all of it. CRC-32 finds each wrong character.
const (
	Prefix = "braid1"
	// MaxPeers bounds the addresses in a line.
	MaxPeers = 16
	maxLine  = 4096
)

// kindName precedes the address of a name: its length in a byte, the name, and the port in 2 bytes.
const kindName = 3

var (
	// kinds precede compact addresses of these families.
	kinds = [...]byte{
		scionnet.IP4: 1, scionnet.IP6: 2, scionnet.SCION4: 4, scionnet.SCION6: 5,
	}
	encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	checksum = crc32.MakeTable(crc32.Castagnoli)
)

// String is the form that ParseLine reads.
func (l Line) String() string {
	b := append(append([]byte(nil), l.Key[:]...), l.InfoHash[:]...)
	for _, p := range l.Peers[:min(len(l.Peers), MaxPeers)] {
		b = appendPeer(b, p)
	}
	return Prefix + encoding.EncodeToString(binary.BigEndian.AppendUint32(b, crcOf(b)))
}

func crcOf(b []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(Prefix), checksum), checksum, b)
}

func appendPeer(b []byte, p client.Peer) []byte {
	if a := p.Addr(); a.Host.IsValid() {
		return a.AppendCompact(append(b, kinds[a.Family()]))
	}
	b = append(append(b, kindName, byte(len(p.Host()))), p.Host()...)
	return binary.BigEndian.AppendUint16(b, p.Port())
}

// clean removes what mail and chats add: white space, also within the line, and quotes around it.
func clean(text string) string {
	return strings.Trim(strings.Join(strings.Fields(text), ""), "\"'`<>")
}

var errDamaged = errors.New("the line is damaged or not complete: copy all of it once more")

// ParseLine reads what String writes. It does not mind upper case, line breaks and quotes.
func ParseLine(text string) (l Line, err error) {
	if len(text) > maxLine {
		return l, fmt.Errorf("the line has %d bytes, want at most %d", len(text), maxLine)
	}
	text = strings.ToLower(clean(text))
	rest, ok := strings.CutPrefix(text, Prefix)
	if !ok {
		return l, fmt.Errorf("a line of braid send begins with %s", Prefix)
	}
	b, err := encoding.DecodeString(rest)
	if err != nil || encoding.EncodeToString(b) != rest { // one text for each line
		return l, errDamaged
	}
	fixed := len(l.Key) + len(l.InfoHash)
	if len(b) < fixed+4 || crcOf(b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return l, errDamaged
	}
	copy(l.InfoHash[:], b[copy(l.Key[:], b):])
	for b = b[fixed : len(b)-4]; len(b) > 0; {
		var p client.Peer
		if p, b, err = cutPeer(b); err != nil {
			return Line{}, fmt.Errorf("address in the line: %w", err)
		}
		if l.Peers = append(l.Peers, p); len(l.Peers) > MaxPeers {
			return Line{}, fmt.Errorf("more than %d addresses in the line", MaxPeers)
		}
	}
	return l, nil
}

var errNoAddress = errors.New("it is of an unknown kind or cut off; a newer braid may have made it")

// cutPeer reads one address, and returns what follows it.
func cutPeer(b []byte) (p client.Peer, rest []byte, err error) {
	kind, b := b[0], b[1:]
	if family := slices.Index(kinds[:], kind); family >= 0 {
		size := scionnet.Family(family).Size()
		if len(b) < size {
			return p, nil, errNoAddress
		}
		a, ok := scionnet.ParseCompact(b[:size])
		if !ok {
			return p, nil, errors.New("nobody can be at it")
		}
		return client.PeerAt(a), b[size:], nil
	}
	if kind != kindName || len(b) == 0 {
		return p, nil, errNoAddress
	}
	size, b := int(b[0]), b[1:]
	if size == 0 || len(b) < size+2 {
		return p, nil, errNoAddress
	}
	port := strconv.Itoa(int(binary.BigEndian.Uint16(b[size:])))
	p, err = client.ParsePeer(net.JoinHostPort(string(b[:size]), port))
	if err == nil && p.Addr().Host.IsValid() {
		err = fmt.Errorf("%s is not a name", p.Host())
	}
	return p, b[size+2:], err
}
