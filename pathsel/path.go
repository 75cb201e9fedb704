package pathsel

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Fingerprint names a path by its interfaces: the hexadecimal SHA-256 that the scion tools print.
// It stays the same when the path is refreshed. The path inside one's own AS has the empty
// fingerprint.
type Fingerprint string

// Short returns enough of the fingerprint to tell apart the paths of one peer.
func (f Fingerprint) Short() string {
	if f == "" {
		return "local"
	}
	return string(f[:min(8, len(f))])
}

// FingerprintOf computes the fingerprint of a sequence of interfaces: SHA-256 over the ISD-AS and
// the interface ID of each, both as 64 bits in network byte order (as in scionproto's snet).
func FingerprintOf(ifs []Interface) Fingerprint {
	if len(ifs) == 0 {
		return ""
	}
	h := sha256.New()
	var b [16]byte
	for _, i := range ifs {
		binary.BigEndian.PutUint64(b[:8], uint64(i.IA))
		binary.BigEndian.PutUint64(b[8:], i.ID)
		h.Write(b[:])
	}
	return Fingerprint(hex.EncodeToString(h.Sum(nil)))
}

// Path is a path as a value: what the control plane announced about it, without measurements or
// anything that a packet needs. The ASes sign the announced figures, but nobody verifies them.
type Path struct {
	Fingerprint Fingerprint `json:"fingerprint"`
	Src         IA          `json:"src"`
	Dst         IA          `json:"dst"`
	// Interfaces are the ends of the links in the order of travel, two for each link: the egress of
	// an AS, then the ingress of the next. Empty inside one AS.
	Interfaces []Interface `json:"interfaces,omitempty"`
	// MTU is the size in bytes of the largest SCION packet, headers included.
	MTU int `json:"mtu,omitempty"`
	// Latency is the sum of the announced one-way latencies. LatencyKnown tells whether every AS
	// announced its part; otherwise the sum is a lower bound.
	Latency      time.Duration `json:"latency_ns,omitempty"`
	LatencyKnown bool          `json:"latency_known,omitempty"`
	// Bandwidth is the smallest announced link bandwidth in bits per second; 0 if no AS announced
	// one.
	Bandwidth uint64 `json:"bandwidth,omitempty"`
	// Expiry is when the hop fields expire. A refreshed path keeps its fingerprint and gets a later
	// Expiry.
	Expiry time.Time `json:"expiry,omitzero"`
}

// Hops returns the number of links between ASes.
func (p Path) Hops() int { return len(p.Interfaces) / 2 }

// Sequence writes the path as a hop sequence: ISD-AS#IN,OUT for each AS, with 0 at the path's ends.
// It is empty for the path inside one AS.
func (p Path) Sequence() string {
	if len(p.Interfaces) == 0 {
		return ""
	}
	var b strings.Builder
	in := uint64(0)
	for i := 0; i+1 < len(p.Interfaces); i += 2 {
		fmt.Fprintf(&b, "%s#%d,%d ", p.Interfaces[i].IA, in, p.Interfaces[i].ID)
		in = p.Interfaces[i+1].ID
	}
	fmt.Fprintf(&b, "%s#%d,0", p.Interfaces[len(p.Interfaces)-1].IA, in)
	return b.String()
}

// ASes returns the ASes in the order of travel, including source and destination.
func (p Path) ASes() []IA {
	ases := []IA{p.Src}
	for i := 1; i < len(p.Interfaces); i += 2 {
		ases = append(ases, p.Interfaces[i].IA)
	}
	return ases
}
