package bencoding

import (
	"strings"
	"testing"

	"github.com/anacrolix/torrent/bencode"
)

var limits = Limits{Values: 1 << 20, Depth: 64}

func TestReader(t *testing.T) {
	for _, s := range []string{"0:", "3:abc", "i0e", "i-7e", "i42e", "le", "de", "l1:ai1ee", "d1:al0:e1:bd1:ci2eee"} {
		r := NewReader([]byte(s+"tail"), limits)
		if err := r.Skip(); err != nil || r.At() != len(s) || string(r.Rest()) != "tail" {
			t.Errorf("%q: %d bytes were read, %v", s, r.At(), err)
		}
	}
	for _, s := range []string{"", "4", "4:abc", "04:abcd", "-1:a", "i", "ie", "i-e", "i01e", "i1", "l", "l1:a", "d", "d1:ae", "d1:a", "di1ei2ee", "e", "x", "99999999999:"} {
		r := NewReader([]byte(s), limits)
		if err := r.Skip(); err == nil {
			t.Errorf("%q was taken as %q", s, s[:r.At()])
		}
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // of the error
	}{
		{"l" + strings.Repeat("0:", 7) + "e", ""},
		{"l" + strings.Repeat("0:", 8) + "e", "more than the 8 values"},
		{"d" + strings.Repeat("0:0:", 4) + "e", "more than the 8 values"},
		{"llleee", ""},
		{"lllleeee", "deeper than the 3"},
		{"llleel" + "ld1:", "deeper than the 3"},
	} {
		err := NewReader([]byte(c.text), Limits{Values: 8, Depth: 3}).Skip()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	if err := NewReader([]byte("l"+strings.Repeat("0:", 1000)+"e"), Limits{Depth: 1}).Skip(); err != nil {
		t.Errorf("without a limit of values: %v", err)
	}
}

// The engine's decoder takes the same bytes for a value as the Reader does, so that nothing gets
// past the limits.
func FuzzReader(f *testing.F) {
	for _, s := range []string{"d1:al0:e1:bd1:ci2eee", "li-7ei0e3:abce", "i01e", "d1:a", "llleee", "d1:b0:1:a0:e"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(b, limits)
		err := r.Skip()
		var v bencode.Bytes
		other := bencode.NewDecoder(strings.NewReader(string(b))).Decode(&v)
		if raw := b[:r.at]; err == nil && (other != nil || string(v) != string(raw)) {
			t.Errorf("the Reader takes %q, the decoder %q, %v", raw, v, other)
		}
		if r.values > len(b) || r.at > len(b) {
			t.Errorf("%d values and %d bytes of %d", r.values, r.at, len(b))
		}
	})
}
