package scionnet

import (
	"bytes"
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/slayers/path"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
)

// segment is a segment of a dataplane path as in a packet: hops in the order of travel, each with
// its interfaces in the direction of construction.
type segment struct {
	consDir, peer bool
	start         uint32 // timestamp
	hops          [][2]uint16
}

// rawPath makes a dataplane path that expires after 6 h. The packet is at its beginning or, if
// arrived, at its end.
func rawPath(t testing.TB, arrived bool, segments ...segment) []byte {
	t.Helper()
	var d scion.Decoded
	d.NumINF = len(segments)
	for i, s := range segments {
		d.PathMeta.SegLen[i] = uint8(len(s.hops))
		d.InfoFields = append(d.InfoFields, path.InfoField{ConsDir: s.consDir, Peer: s.peer, Timestamp: s.start})
		for _, h := range s.hops {
			d.HopFields = append(d.HopFields, path.HopField{ConsIngress: h[0], ConsEgress: h[1], ExpTime: 63})
		}
		d.NumHops += len(s.hops)
	}
	if arrived {
		d.PathMeta.CurrHF, d.PathMeta.CurrINF = uint8(d.NumHops-1), uint8(d.NumINF-1)
	}
	b := make([]byte, d.Len())
	if err := d.SerializeTo(b); err != nil {
		t.Fatal(err)
	}
	return b
}

func trailFrom(ids ...uint16) trail {
	var b []byte
	for _, i := range ids {
		b = append(b, byte(i>>8), byte(i))
	}
	return trail(b)
}

// Hop fields give interfaces in the direction of construction, so those of an up segment are
// reversed.
var (
	up    = segment{false, false, 2000, [][2]uint16{{11, 0}, {21, 22}, {0, 31}}}
	core  = segment{true, false, 1000, [][2]uint16{{0, 41}, {51, 0}}}
	down  = segment{true, false, 3000, [][2]uint16{{0, 61}, {71, 72}, {81, 0}}}
	short = segment{true, false, 3000, [][2]uint16{{99, 61}, {81, 0}}} // leaves a segment in the middle
	peerA = segment{false, true, 2000, [][2]uint16{{11, 0}, {23, 22}}} // 23 is the peering interface
	peerB = segment{true, true, 2000, [][2]uint16{{33, 34}, {44, 0}}}
)

func TestTrail(t *testing.T) {
	for _, tt := range []struct {
		name     string
		segments []segment
		want     trail
	}{
		{"one AS to the next", []segment{core}, trailFrom(41, 51)},
		{"up", []segment{up}, trailFrom(11, 22, 21, 31)},
		{"down", []segment{down}, trailFrom(61, 71, 72, 81)},
		{"up and core", []segment{up, core}, trailFrom(11, 22, 21, 31, 41, 51)},
		{"up, core and down", []segment{up, core, down}, trailFrom(11, 22, 21, 31, 41, 51, 61, 71, 72, 81)},
		{"shortcut", []segment{up, short}, trailFrom(11, 22, 21, 31, 61, 81)},
		{"peering", []segment{peerA, peerB}, trailFrom(11, 22, 23, 33, 34, 44)},
		{"inside the AS", nil, ""},
	} {
		var raw, arrived []byte
		if tt.segments != nil {
			raw, arrived = rawPath(t, false, tt.segments...), rawPath(t, true, tt.segments...)
		}
		h, err := readHops(raw)
		if err != nil || h.trail != tt.want {
			t.Errorf("%s: trail %x, %v, want %x", tt.name, h.trail, err, tt.want)
		}

		before := bytes.Clone(arrived)
		back, r, err := reverseHops(arrived)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if !bytes.Equal(before, arrived) {
			t.Errorf("%s: reversing changed the path that was given", tt.name)
		}
		if want := turn(tt.want); r.trail != want {
			t.Errorf("%s: trail back %x, want %x", tt.name, r.trail, want)
		}
		if again, err := readHops(back); err != nil || again != r {
			t.Errorf("%s: path back reads as %v, %v, want %v", tt.name, again, err, r)
		}
	}
}

func turn(t trail) trail {
	var b []byte
	for i := len(t) - 2; i >= 0; i -= 2 {
		b = append(b, t[i:i+2]...)
	}
	return trail(b)
}

func TestExpiry(t *testing.T) {
	h, err := readHops(rawPath(t, false, up, core, down))
	// 64 units of 24 h / 256 after the oldest beacon
	if want := time.Unix(1000, 0).Add(6 * time.Hour); err != nil || !h.expiry.Equal(want) {
		t.Errorf("expiry %v, %v, want %v", h.expiry, err, want)
	}
}

func TestHopsRefused(t *testing.T) {
	good := rawPath(t, true, up, core)
	for name, raw := range map[string][]byte{
		"not arrived":    rawPath(t, false, up, core),
		"cut off":        good[:len(good)-1],
		"with more":      append(bytes.Clone(good), 0),
		"without fields": {0, 0, 0, 0},
		"one byte":       {0},
	} {
		if _, _, err := reverseHops(raw); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func FuzzHops(f *testing.F) {
	for _, s := range [][]segment{{core}, {up, core, down}, {peerA, peerB}} {
		f.Add(rawPath(f, true, s...))
		f.Add(rawPath(f, false, s...))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		h, err := readHops(raw)
		back, r, rerr := reverseHops(raw)
		if !bytes.Equal(raw, before) {
			t.Fatal("the path that was given has changed")
		}
		if rerr != nil {
			return
		}
		if err != nil {
			t.Fatalf("can be reversed but not read: %v", err)
		}
		if turn(r.trail) != h.trail || !r.expiry.Equal(h.expiry) {
			t.Fatalf("back: %v, there: %v", r, h)
		}
		if len(back) != len(raw) {
			t.Fatalf("%d bytes became %d", len(raw), len(back))
		}
	})
}
