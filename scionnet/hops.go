package scionnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/scionproto/scion/pkg/slayers/path"
	"github.com/scionproto/scion/pkg/slayers/path/scion"

	"braid/pathsel"
)

// trail is the sequence of interface IDs on a path, in the order of travel, two bytes each. From a
// known AS it identifies one path, and it stays the same when hop fields are renewed. The path
// inside one AS has the empty trail.
type trail string

func trailOf(ifs []pathsel.Interface) trail {
	b := make([]byte, 0, 2*len(ifs))
	for _, i := range ifs {
		b = binary.BigEndian.AppendUint16(b, uint16(i.ID))
	}
	return trail(b)
}

// first is the interface through which the path leaves its first AS; 0 for the path inside one AS.
func (t trail) first() uint16 {
	if len(t) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16([]byte(t[:2]))
}

// hops is a parsed SCION dataplane path.
type hops struct {
	trail  trail
	expiry time.Time // of the hop field that ends first
}

// expUnit is the unit of a hop field's lifetime, 24 h / 256 (SCION header specification, hop
// field).
const expUnit = path.MaxTTL / 256

// readHops parses a dataplane path of the SCION type. It leaves raw as it is. The empty path is the
// one inside an AS; it does not expire.
func readHops(raw []byte) (hops, error) {
	if len(raw) == 0 {
		return hops{}, nil
	}
	d, err := decodePath(raw)
	if err != nil {
		return hops{}, err
	}
	return hops{trailOfPath(d), expiryOfPath(d)}, nil
}

// reverseHops makes the way back from the path of a received packet. It returns new memory, whereas
// scion.Raw.Reverse would edit raw.
func reverseHops(raw []byte) ([]byte, hops, error) {
	if len(raw) == 0 {
		return nil, hops{}, nil
	}
	d, err := decodePath(raw)
	if err != nil {
		return nil, hops{}, err
	}
	// A packet that has arrived must be at the last hop. Otherwise the way back would start
	// elsewhere.
	if int(d.PathMeta.CurrHF) != d.NumHops-1 || int(d.PathMeta.CurrINF) != d.NumINF-1 {
		return nil, hops{}, fmt.Errorf("dataplane path: packet arrived at hop %d of %d", d.PathMeta.CurrHF+1, d.NumHops)
	}
	if _, err := d.Reverse(); err != nil {
		return nil, hops{}, fmt.Errorf("dataplane path: %w", err)
	}
	back := make([]byte, d.Len())
	if err := d.SerializeTo(back); err != nil {
		return nil, hops{}, fmt.Errorf("dataplane path: %w", err)
	}
	h := hops{trailOfPath(d), expiryOfPath(d)}
	if h.trail == "" {
		return nil, hops{}, errors.New("dataplane path: it crosses no link") // nor is it the way inside the AS
	}
	return back, h, nil
}

func decodePath(raw []byte) (*scion.Decoded, error) {
	var d scion.Decoded
	if err := d.DecodeFromBytes(raw); err != nil {
		return nil, fmt.Errorf("dataplane path: %w", err)
	}
	if d.Len() != len(raw) {
		return nil, fmt.Errorf("dataplane path: %d bytes left over", len(raw)-d.Len())
	}
	if d.NumHops == 0 {
		return nil, fmt.Errorf("dataplane path: no hop fields")
	}
	return &d, nil
}

// crossing is an interface on a path, and the place of its ID in the hop fields.
type crossing struct {
	id      uint16
	hop     int  // index of the hop field
	ingress bool // seen in the direction of the segment's construction
}

// crossings lists the interfaces in the order of travel. Where two segments meet, two hop fields
// belong to one AS, and each names only one of its interfaces. At a peering link (both segments
// have the peering flag) each hop field belongs to an AS of its own and names both.
func crossings(d *scion.Decoded) []crossing {
	var out []crossing
	hop := 0
	for seg, info := range d.InfoFields {
		n := int(d.PathMeta.SegLen[seg])
		for i := range n {
			f := d.HopFields[hop+i]
			in, to := crossing{f.ConsIngress, hop + i, true}, crossing{f.ConsEgress, hop + i, false}
			if !info.ConsDir {
				in, to = to, in
			}
			if i > 0 || seg > 0 && info.Peer {
				out = append(out, in)
			}
			if i < n-1 || seg < d.NumINF-1 && info.Peer {
				out = append(out, to)
			}
		}
		hop += n
	}
	return out
}

func trailOfPath(d *scion.Decoded) trail {
	all := crossings(d)
	b := make([]byte, 0, 2*len(all))
	for _, c := range all {
		b = binary.BigEndian.AppendUint16(b, c.id)
	}
	return trail(b)
}

func expiryOfPath(d *scion.Decoded) time.Time {
	var first time.Time
	hop := 0
	for seg, info := range d.InfoFields {
		start := time.Unix(int64(info.Timestamp), 0)
		for range d.PathMeta.SegLen[seg] {
			end := start.Add(time.Duration(1+int(d.HopFields[hop].ExpTime)) * expUnit)
			if first.IsZero() || end.Before(first) {
				first = end
			}
			hop++
		}
	}
	return first
}

const (
	commonAndIAs = 12 + 16 // SCION common header, and the ISD-AS part of the address header
	udpHeader    = 8
)
