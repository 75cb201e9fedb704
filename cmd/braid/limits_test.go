package main

import (
	"strings"
	"testing"

	"braid/client"
	"braid/testbed/linkemu"
)

func TestParseRate(t *testing.T) {
	for s, want := range map[string]int64{
		"10mbit": 10e6, " 1.5 gbit ": 15e8, "64000": 64000, "1.5MB/s": 12e6, "1.5 MB/s": 12e6, "100kB/s": 8e5, "100KB/s": 8e5, "1MiB/s": 8 << 20,
		"2KiB/s": 16 << 10, "0.1GB/s": 8e8, "10kbit": client.MinRate, "1000gbit": linkemu.MaxRate, "125GB/s": linkemu.MaxRate,
	} {
		if got, err := parseRate(s); got != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "0", "1mb/s", "1.5Mb/s", "-1MB/s", "1e3MB/s", "MB/s", ".MB/s", "1MB", "9kbit", "1kB/s", "126GB/s", "fast", "10 mbit/h"} {
		if got, err := parseRate(s); err == nil || !strings.Contains(err.Error(), "10mbit or 1.5MB/s") {
			t.Errorf("%q: %d, %v; want an error with the accepted forms", s, got, err)
		}
	}
}

func FuzzParsePathLimit(f *testing.F) {
	for _, s := range []string{"1-ff00:0:110#2=10mbit", "1=50mbit", "0=1.5MB/s", "1-64512=1gbit", "=", "1-1#1,2=10kbit"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := parsePathLimit(s)
		if err != nil {
			return
		}
		again, err := parsePathLimit(l.Pattern.String() + "=" + linkemu.FormatRate(l.Rate))
		if err != nil || again != l || l.Rate < client.MinRate || l.Rate > linkemu.MaxRate {
			t.Errorf("%q is %v, and read back %v, %v", s, l, again, err)
		}
	})
}

// What is wrong with a limit is said with the flag's name and the accepted forms.
func TestLimitFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--upload-rate", "fast"}, {"--download-rate", "0"}, {"--rate-limit", "10mbit"}, {"--rate-limit", "1-ff00:0:110#x=10mbit"},
		{"--rate-limit", "1#2=10mbit"}, {"--rate-limit", "1=1"},
	} {
		args := append([]string{"download", "magnet:?xt=urn:btih:0123456789012345678901234567890123456789", "--peer", "127.0.0.1:1"}, args...)
		code, _, said := ends(t, t.TempDir(), args...)
		if code != exitUsage || !strings.Contains(said, args[4]) || !strings.Contains(said, "mbit") && !strings.Contains(said, "ISD-AS#IF") {
			t.Errorf("%v: exit code %d, %s", args, code, said)
		}
	}
}
