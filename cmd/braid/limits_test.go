package main

import (
	"strings"
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

// What is wrong with a limit is said with the flag's name and the accepted forms.
func TestLimitFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--upload-rate", "fast"}, {"--download-rate", "0"}, {"--rate-limit", "10mbit"}, {"--rate-limit", "1-ff00:0:110#x=10mbit"},
		{"--rate-limit", "1#2=10mbit"}, {"--rate-limit", "1=1"}, {"--rate-limit", "1=10"}, {"--upload-rate", "9kbit"}, {"--upload-rate", "1000"},
	} {
		args := append([]string{"download", "magnet:?xt=urn:btih:0123456789012345678901234567890123456789", "--peer", "127.0.0.1:1"}, args...)
		code, _, said := ends(t, t.TempDir(), args...)
		if code != exitUsage || !strings.Contains(said, args[4]) || !strings.Contains(said, "bit") && !strings.Contains(said, "ISD-AS#IF") {
			t.Errorf("%v: exit code %d, %s", args, code, said)
		}
	}
}
