package dht

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/bits"
	"math/rand/v2"

	"braid/scionnet"
)

// ID names a node, a torrent or an item: points of one space, with XOR as the distance (BEP 5).
type ID [20]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText writes hexadecimal digits.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads 40 hexadecimal digits.
func (id *ID) UnmarshalText(b []byte) error {
	if n, err := hex.Decode(id[:], b[:min(len(b), 40)]); err != nil || n != len(id) || len(b) != 40 {
		return fmt.Errorf("ID %q: want 40 hexadecimal digits", b)
	}
	return nil
}

// commonBits is the length of the prefix that two points share: 0 to 160.
func (id ID) commonBits(o ID) int {
	for i := range id {
		if x := id[i] ^ o[i]; x != 0 {
			return 8*i + bits.LeadingZeros8(x)
		}
	}
	return 8 * len(id)
}

// nearer compares the distances of a and b to a target, as slices.SortFunc wants it.
func nearer(target, a, b ID) int {
	for i := range target {
		if x, y := a[i]^target[i], b[i]^target[i]; x != y {
			return int(x) - int(y)
		}
	}
	return 0
}

func randomID(r *rand.Rand) (id ID) {
	for i := 0; i < len(id); i += 4 {
		binary.BigEndian.PutUint32(id[i:], r.Uint32())
	}
	return id
}

// randomIn is a random point whose common prefix with id has n bits, n below 160.
func (id ID) randomIn(n int, r *rand.Rand) ID {
	out := randomID(r)
	whole := n / 8
	copy(out[:whole], id[:whole])
	mask := byte(0xff) << (7 - n%8) // the prefix and the first bit behind it
	out[whole] = (id[whole]^0x80>>(n%8))&mask | out[whole]&^mask
	return out
}

// boundBits is the number of leading bits of an ID that follow from the node's address (BEP 42).
const boundBits = 21

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	mask4      = []byte{0x03, 0x0f, 0x3f, 0xff}
	mask6      = []byte{0x01, 0x03, 0x07, 0x0f, 0x1f, 0x3f, 0x7f, 0xff}
)

// boundPrefix is the prefix that an address allows, for a number r below 8: BEP 42's rule. On SCION
// the eight bytes of the ISD-AS stand before the masked host.
func boundPrefix(a Addr, r byte) uint32 {
	host, mask := a.Host.AsSlice(), mask4
	if a.Host.Is6() {
		mask = mask6
	}
	var b []byte
	if a.IsSCION() {
		b = binary.BigEndian.AppendUint64(b, uint64(a.IA))
	}
	at := len(b)
	for i, m := range mask {
		b = append(b, host[i]&m)
	}
	b[at] |= r << 5
	return crc32.Checksum(b, castagnoli)
}

// BoundID is an ID that an address allows.
func BoundID(a Addr, r *rand.Rand) ID {
	id := randomID(r)
	prefix := boundPrefix(a, id[19]&7)
	id[0], id[1] = byte(prefix>>24), byte(prefix>>16)
	id[2] = byte(prefix>>8)&0xf8 | id[2]&7
	return id
}

// IsBound reports whether an address allows an ID. Near addresses on IP allow any (BEP 42).
func IsBound(id ID, a Addr) bool {
	if !a.IsSCION() && scionnet.ScopeOf(a.Host) != scionnet.ScopePublic {
		return true
	}
	have := binary.BigEndian.Uint32(id[:4])
	return (have^boundPrefix(a, id[19]&7))>>(32-boundBits) == 0
}
