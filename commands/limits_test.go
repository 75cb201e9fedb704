package commands

import (
	"testing"

	"braid/client"
	"braid/units"
)

func FuzzParsePathLimit(f *testing.F) {
	for _, s := range []string{"1-ff00:0:110#2=10mbit", "1=50mbit", "0=1.5MB/s", "1-64512=1gbit", "=", "1-1#1,2=10kbit"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := parsePathLimit(s)
		if err != nil {
			return
		}
		again, err := parsePathLimit(l.Pattern.String() + "=" + units.FormatRate(l.Rate))
		if err != nil || again != l || l.Rate < client.MinRate || l.Rate > units.MaxRate {
			t.Errorf("%q is %v, and read back %v, %v", s, l, again, err)
		}
	})
}
