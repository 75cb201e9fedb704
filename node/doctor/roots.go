package doctor

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/scrypto/cppki"

	"braid/node/bootstrap"
	"braid/pathsel"
	"braid/scionnet"
)

// trcFile is a file with a TRC.
type trcFile struct {
	Validity
	signed cppki.SignedTRC
}

// trcs are the TRC files of a directory, the newest first.
type trcs []*trcFile

// readTRCs reads the TRCs of a configuration directory, in PEM or DER.
func readTRCs(dir string) (out trcs) {
	names, texts := files(dir, "certs", ".trc")
	for i, b := range texts {
		t := &trcFile{Validity: Validity{Name: names[i]}}
		t.signed, t.Err = cppki.DecodeSignedTRC(bootstrap.DER(b))
		x := t.signed.TRC
		t.ISD, t.From, t.To = uint16(x.ID.ISD), x.Validity.NotBefore, x.Validity.NotAfter
		out = append(out, t)
	}
	slices.SortStableFunc(out, func(a, b *trcFile) int {
		return compareAge(b.signed.TRC.ID, a.signed.TRC.ID)
	})
	return out
}

func compareAge(a, b cppki.TRCID) int {
	return cmp.Or(cmp.Compare(a.Base, b.Base), cmp.Compare(a.Serial, b.Serial))
}

// validities returns the lifetimes of the newest TRC of each ISD, and of all unusable files.
func (all trcs) validities() (out []Validity) {
	seen := map[uint16]bool{}
	for _, t := range all {
		v := t.Validity
		if v.Err == nil && !v.Foreign {
			if seen[v.ISD] {
				continue
			}
			seen[v.ISD] = true
			v.Name = "TRC " + t.signed.TRC.ID.String()
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b Validity) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// compare marks the files of another network with the same ISD number: the control services of the
// AS have another TRC with the same ID. It returns the newest TRC of the ISD: that of the control
// services or, if none of them answers, that of the files. It returns nil if there is no TRC.
func (all trcs) compare(ctx context.Context, h *scionnet.Host) *cppki.TRC {
	ctx, cancel := context.WithTimeout(ctx, stepFor)
	defer cancel()
	isd := addr.ISD(h.IA().ISD())
	services, err := h.ControlServices(ctx)
	var newest *cppki.TRC
	if err == nil {
		t, err := bootstrap.AskForTRC(ctx, cppki.TRCID{ISD: isd}, services)
		if err == nil && t.TRC.ID.ISD == isd {
			newest = &t.TRC
		}
	}
	asked := 0
	for _, t := range all {
		id := t.signed.TRC.ID
		if t.Err != nil || id.ISD != isd {
			continue
		}
		if newest == nil {
			return &t.signed.TRC
		}
		if asked++; asked > maxServed {
			break
		}
		if compareAge(id, newest.ID) > 0 {
			t.Foreign = t.signed.Verify(newest) != nil
			continue
		}
		served, err := bootstrap.AskForTRC(ctx, id, services)
		if err == nil && served.TRC.ID == id {
			t.Foreign = !bytes.Equal(served.TRC.Raw, t.signed.TRC.Raw)
		}
	}
	return newest
}

// coresOf returns some core ASes of the ISD, as its TRC names them.
func coresOf(t *cppki.TRC, local pathsel.IA) (out []pathsel.IA) {
	if t == nil {
		return nil
	}
	for _, as := range t.CoreASes {
		ia := pathsel.IA(uint64(t.ID.ISD)<<48 | uint64(as))
		if ia != local && len(out) < maxCores {
			out = append(out, ia)
		}
	}
	return out
}
