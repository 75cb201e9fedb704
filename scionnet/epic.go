package scionnet

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/scionproto/scion/pkg/experimental/epic"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path"
	epicpath "github.com/scionproto/scion/pkg/slayers/path/epic"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
	"github.com/scionproto/scion/pkg/snet"
)

// EPIC-HP (SCION header specification, path type EPIC-HP). Each packet carries an identifier and
// two MACs over it, the source and the payload's length, before the ordinary path. The routers of
// the last two ASes check them, so that only who was told of the path can send along it. Answers
// come along the reversed ordinary path.
//
// A host sends with EPIC along the routes that it has dialled; accepted connections along the same
// route share its header. A host that has only accepted sends without EPIC, since the dialler has
// chosen the size of QUIC's packets and may have left no room for 16 bytes.
//
// The routers drop packets that are older than 3 s or come from more than 1 s ahead, and send no SCMP
// message: a wrong clock looks like a silent path.

// epicKeys make the fields of EPIC for packets along one way.
type epicKeys struct {
	begun             uint32 // timestamp of the first info field, in seconds of Unix time
	penultimate, last cipher.Block
	sent              atomic.Uint32 // packets
}

// epicScratch is memory for the input of a MAC: 23 bytes and a host address, padded to AES blocks.
type epicScratch struct{ input, mac [epic.MACBufferSize]byte }

// newEPIC makes the keys for a path from its authenticators. A key begins with the MAC of its hop
// field. It is taken from there, since scionproto v0.15.1 gives that of another hop field where the
// last but one AS is entered over a peering link, so that routers there drop what its own tools
// send.
func newEPIC(raw []byte, auths snet.EpicAuths) (*epicKeys, error) {
	d, err := decodePath(raw)
	if err != nil {
		return nil, err
	}
	if d.NumHops < 2 || len(auths.AuthPHVF) != epic.AuthLen || len(auths.AuthLHVF) != epic.AuthLen {
		return nil, fmt.Errorf("EPIC: %d hop fields, authenticators of %d and %d bytes",
			d.NumHops, len(auths.AuthPHVF), len(auths.AuthLHVF))
	}
	key := func(f path.HopField, auth []byte) cipher.Block {
		b, _ := aes.NewCipher(append(f.Mac[:], auth[len(f.Mac):]...)) // fails for wrong lengths only
		return b
	}
	k := &epicKeys{begun: d.InfoFields[0].Timestamp}
	k.penultimate, k.last = key(d.HopFields[d.NumHops-2], auths.AuthPHVF), key(d.HopFields[d.NumHops-1], auths.AuthLHVF)
	return k, nil
}

// stamp fills in the fields of EPIC in a packet whose header is otherwise complete.
func (k *epicKeys) stamp(header []byte, now time.Time, s *epicScratch) {
	at, _ := epicFields(header)
	fields := header[at : at+epicpath.MetadataLen]
	binary.BigEndian.PutUint32(fields, k.timestamp(now))
	binary.BigEndian.PutUint32(fields[4:], k.sent.Add(1))

	in := append(s.input[:0], header[atHostTypes]&3) // the length of the source
	in = binary.BigEndian.AppendUint32(in, k.begun)
	in = append(in, fields[:epicpath.PktIDLen]...)
	in = append(in, header[atSourceIA:commonAndIAs]...)
	in = append(in, header[at-sourceLen(header):at]...)
	in = append(in, header[atPayloadLen:atPathType]...)
	for len(in)%aes.BlockSize != 0 {
		in = append(in, 0)
	}
	s.cbcMAC(k.penultimate, in)
	copy(fields[epicpath.PktIDLen:], s.mac[:epicpath.HVFLen])
	s.cbcMAC(k.last, in)
	copy(fields[epicpath.PktIDLen+epicpath.HVFLen:], s.mac[:epicpath.HVFLen])
}

// timestamp is how long after the beginning of the path a packet is sent, in units of 21 us.
func (k *epicKeys) timestamp(now time.Time) uint32 {
	units := now.Sub(time.Unix(int64(k.begun), 0))/epic.TimestampResolution - 1
	return uint32(min(max(units, 0), 1<<32-1))
}

// cbcMAC leaves the last block of AES in CBC mode, with zeros before the first, in s.mac.
func (s *epicScratch) cbcMAC(b cipher.Block, in []byte) {
	x := s.mac[:aes.BlockSize]
	clear(x)
	for ; len(in) > 0; in = in[aes.BlockSize:] {
		for i := range x {
			x[i] ^= in[i]
		}
		b.Encrypt(x, x)
	}
}

// epicFields is where the fields of EPIC are in a header; both are the same if there are none.
func epicFields(header []byte) (from, to int) {
	if header[atPathType] != byte(epicpath.PathType) {
		return atPathType, atPathType
	}
	from = commonAndIAs + 4*(1+int(header[atHostTypes]>>4&3)) + sourceLen(header)
	if to = from + epicpath.MetadataLen; to > len(header)-udpHeader {
		return atPathType, atPathType
	}
	return from, to
}

// sourceLen is the length of the source's host address.
func sourceLen(header []byte) int { return 4 * (1 + int(header[atHostTypes]&3)) }

// epicDataplane is a path whose packets snet writes; stamp has to follow.
type epicDataplane struct {
	keys *epicKeys
	raw  []byte // which serialisation modifies
}

// SetPath implements snet.DataplanePath.
func (p epicDataplane) SetPath(s *slayers.SCION) error {
	var inner scion.Raw
	if err := inner.DecodeFromBytes(p.raw); err != nil {
		return fmt.Errorf("dataplane path: %w", err)
	}
	unset := make([]byte, epicpath.HVFLen)
	s.Path, s.PathType = &epicpath.Path{PHVF: unset, LHVF: unset, ScionPath: &inner}, epicpath.PathType
	return nil
}

// withoutEPIC is the ordinary path in the path of a received packet. ok is false for other path
// types.
func withoutEPIC(p snet.RawPath) (raw []byte, ok bool) {
	if p.PathType != epicpath.PathType || len(p.Raw) <= epicpath.MetadataLen {
		return nil, false
	}
	return p.Raw[epicpath.MetadataLen:], true
}
