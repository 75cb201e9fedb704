package scionnet

import (
	"net/netip"
	"strings"
	"testing"

	"braid/pathsel"
)

func mustAddr(t testing.TB, s string) Addr {
	t.Helper()
	a, err := ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestParseAddr(t *testing.T) {
	ia, err := pathsel.ParseIA("1-ff00:0:111")
	if err != nil {
		t.Fatal(err)
	}
	v4 := Addr{ia, netip.MustParseAddr("127.0.0.1"), 42000}
	v6 := Addr{ia, netip.MustParseAddr("fd00::1"), 42000}
	for s, want := range map[string]Addr{
		"1-ff00:0:111,[127.0.0.1]:42000":        v4,
		"[1-ff00:0:111,127.0.0.1]:42000":        v4,
		"1-ff00:0:111,127.0.0.1:42000":          v4,
		"1-ff00:0:111,[fd00::1]:42000":          v6,
		"[1-ff00:0:111,fd00::1]:42000":          v6,
		"1-ff00:0:111,[::ffff:127.0.0.1]:42000": v4,
		"1-64512,[127.0.0.1]:0":                 {1<<48 | 64512, v4.Host, 0},
	} {
		got, err := ParseAddr(s)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", s, got, err, want)
		}
	}
	if got := v6.String(); got != "1-ff00:0:111,[fd00::1]:42000" {
		t.Errorf("String: %s", got)
	}
}

func TestParseAddrErrors(t *testing.T) {
	for s, part := range map[string]string{
		"":                                 "want ISD-AS",
		"127.0.0.1:42000":                  "want ISD-AS",
		"1-ff00:0:111,[127.0.0.1]":         "port is missing",
		"[1-ff00:0:111,127.0.0.1]":         "port is missing",
		"1-ff00:0:111,127.0.0.1":           "port is missing",
		"1-ff00:0:111,fd00::1:42000":       "brackets",
		"1-ff00:0:111,[127.0.0.1]:x":       "port",
		"1-ff00:0:111,[127.0.0.1]:65536":   "port",
		"1-ff00:0:111,[127.0.0.1]:-1":      "port",
		"1-ff00:0:111,[localhost]:1":       "not an IP address",
		"1-ff00:0:111,[fe80::1%eth0]:1":    "zone",
		"1-ff00:0:111,[0.0.0.0]:1":         "unspecified",
		"0-0,[127.0.0.1]:1":                "wildcard",
		"1-0,[127.0.0.1]:1":                "wildcard",
		"1-ff00:0:111:1,[127.0.0.1]:42000": "AS",
		"x,[127.0.0.1]:42000":              "ISD-AS",
	} {
		_, err := ParseAddr(s)
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: error %v, want one about %q", s, err, part)
		}
	}
}

func FuzzParseAddr(f *testing.F) {
	for _, s := range []string{
		"1-ff00:0:111,[127.0.0.1]:42000", "[1-ff00:0:111,fd00::1]:42000", "1-64512,10.0.0.1:1", "[1-1,::1%a]:1", "0-0,[::]:0", ",", "[,]:",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddr(s)
		if err != nil {
			return
		}
		again, err := ParseAddr(a.String())
		if err != nil || again != a {
			t.Errorf("%q is %+v, which prints as %s, which is %+v, %v", s, a, a, again, err)
		}
	})
}
