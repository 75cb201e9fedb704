// Package bootstrap configures SCION on a host without a configuration. It finds a discovery server
// of the network (hints.go), asks it for the topology of the AS and for TRCs (fetch.go), decides
// whether the TRCs fit the known ones (trust.go), and keeps both in a directory (keep.go).
//
// It follows the design "Automatic host bootstrapping" of scionproto. The network is trusted on
// first use: nothing authenticates the first TRC of an ISD, so its fingerprint is shown. Every
// later TRC must be signed by the voters of the one before it. The topology is never authenticated;
// the control plane that it leads to is, by the TRCs.
package bootstrap

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/scrypto/cppki"
)

// DefaultPort is the port of discovery servers.
const DefaultPort = 8041

// ErrContradiction says that a server offers a TRC that does not follow from the known ones.
var ErrContradiction = errors.New("the server's TRC contradicts the known one")

// Trust is the reason to trust a TRC.
type Trust string

// The reasons.
const (
	FirstUse Trust = "first use" // it is the first TRC of the ISD
	Known    Trust = "known"     // it was trusted before
	Chained  Trust = "update"    // the voters of its predecessor have signed it
)

// Judged is a trusted TRC.
type Judged struct {
	TRC   cppki.SignedTRC
	Trust Trust
}

// Fingerprint is the SHA-256 of a TRC file in DER, in hexadecimal digits.
func Fingerprint(t cppki.SignedTRC) string {
	sum := sha256.Sum256(t.Raw)
	return hex.EncodeToString(sum[:])
}

// Judge decides which of the offered TRCs to trust. local is the ISD of the host. It returns an
// error if a TRC contradicts a known one, or if the newest TRC of the local ISD is not valid now;
// then the caller should use nothing of the offer.
func Judge(
	known, offered []cppki.SignedTRC, local addr.ISD, now time.Time,
) (out []Judged, err error) {
	newest := map[addr.ISD]cppki.SignedTRC{}
	for _, k := range known {
		if n, ok := newest[k.TRC.ID.ISD]; !ok || compareIDs(k.TRC.ID, n.TRC.ID) > 0 {
			newest[k.TRC.ID.ISD] = k
		}
	}
	offered = slices.Clone(offered)
	slices.SortFunc(offered, func(a, b cppki.SignedTRC) int {
		return compareIDs(a.TRC.ID, b.TRC.ID)
	})
	for _, t := range offered {
		trust, err := judge(known, newest, t)
		if err != nil {
			return nil, fmt.Errorf("TRC %s with fingerprint %s: %w", t.TRC.ID, Fingerprint(t), err)
		}
		if trust != Known {
			newest[t.TRC.ID.ISD] = t
		}
		out = append(out, Judged{t, trust})
	}
	switch n, ok := newest[local]; {
	case !ok:
		return nil, fmt.Errorf("the server has no TRC of ISD %d, to which the AS belongs", local)
	case !n.TRC.Validity.Contains(now):
		valid := n.TRC.Validity
		return nil, fmt.Errorf(
			"TRC %s is valid from %s to %s, and it is %s by the clock of this host", n.TRC.ID,
			valid.NotBefore.Format(time.DateTime), valid.NotAfter.Format(time.DateTime),
			now.UTC().Format(time.DateTime))
	}
	return out, nil
}

func judge(
	known []cppki.SignedTRC, newest map[addr.ISD]cppki.SignedTRC, t cppki.SignedTRC,
) (Trust, error) {
	id := t.TRC.ID
	for _, k := range known {
		if k.TRC.ID != id {
			continue
		}
		if !bytes.Equal(k.TRC.Raw, t.TRC.Raw) {
			return "", fmt.Errorf("%w, whose fingerprint is %s", ErrContradiction, Fingerprint(k))
		}
		return Known, nil
	}
	last, ok := newest[id.ISD]
	switch {
	case !ok && id.IsBase():
		return FirstUse, t.Verify(nil)
	case !ok: // nobody can verify it without its predecessor
		return FirstUse, t.TRC.Validate()
	case last.TRC.ID.Base == id.Base && id.Serial < last.TRC.ID.Serial:
		return Known, nil // older than a trusted one, so it is of no use
	case last.TRC.ID.Base != id.Base:
		return "", fmt.Errorf("%w: it has another base, so nothing shows that it is of the same ISD", ErrContradiction)
	}
	if err := t.Verify(&last.TRC); err != nil {
		return "", fmt.Errorf("%w: it is not signed as an update of TRC %s: %w",
			ErrContradiction, last.TRC.ID, err)
	}
	return Chained, nil
}
