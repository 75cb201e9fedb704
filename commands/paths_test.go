package commands

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"braid/commands/program"
	"braid/commands/terminal"
	"braid/pathsel"
)

func TestParseDestination(t *testing.T) {
	ia, err := pathsel.ParseIA("1-ff00:0:111")
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]netip.Addr{
		"1-ff00:0:111":                   {},
		"1-ff00:0:111,[127.0.0.1]:42000": netip.MustParseAddr("127.0.0.1"),
		"[1-ff00:0:111,fd00::1]:42000":   netip.MustParseAddr("fd00::1"),
	} {
		got, host, err := parseDestination(s)
		if err != nil || got != ia || host != want {
			t.Errorf("%s: %s, %s, %v", s, got, host, err)
		}
	}
	for _, s := range []string{"", "x", "1-0", "0-0", "1-ff00:0:111,", "1-ff00:0:111,[127.0.0.1]"} {
		if _, _, err := parseDestination(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

var threeASes = []pathsel.Interface{{IA: 1<<48 | 10, ID: 1}, {IA: 1<<48 | 20, ID: 2}, {IA: 1<<48 | 20, ID: 3}, {IA: 1<<48 | 30, ID: 4}}

func TestPathAsText(t *testing.T) {
	if got, want := (pathsel.Path{Interfaces: threeASes}).Sequence(), "1-10#0,1 1-20#2,3 1-30#4,0"; got != want {
		t.Errorf("sequence %q, want %q", got, want)
	}
	if got, want := arrows(threeASes), "[1-10 1>2 1-20 3>4 1-30]"; got != want {
		t.Errorf("arrows %q, want %q", got, want)
	}
}

func TestPrintPaths(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ms := 12.5
	l := pathList{Destination: 1<<48 | 30, Paths: []pathReport{
		{
			Fingerprint: "0123456789abcdef", FullFingerprint: "0123456789abcdef0123", Hops: threeASes, Sequence: "1-10#0,1", NextHop: "10.0.0.1:30001",
			Expiry: now.Add(90 * time.Minute), MTU: 1400, LatencyMS: &ms, Bandwidth: 20_000_000, Status: "alive", RTTMS: 26.04,
		},
		{Fingerprint: "fedcba9876543210", Hops: threeASes[:2], MTU: 9000, Expiry: now, Status: "scmp", StatusInfo: "interface down: 1-10#1"},
		{Fingerprint: "local", MTU: 1472, LatencyMS: new(float64), Expiry: now},
	}}
	for extended, want := range map[bool]string{
		false: `Available paths to 1-30
[0] 01234567  [1-10 1>2 1-20 3>4 1-30]  MTU: 1400  Latency: 12.5ms  Bandwidth: 20Mbit/s  Status: alive, 26ms
[1] fedcba98  [1-10 1>2 1-20]           MTU: 9000  Latency: ?       Bandwidth: ?         Status: scmp (interface down: 1-10#1)
[2] local     []                        MTU: 1472  Latency: 0ms     Bandwidth: ?
`,
		true: `Available paths to 1-30
[0] 01234567  [1-10 1>2 1-20 3>4 1-30]  MTU: 1400  Latency: 12.5ms  Bandwidth: 20Mbit/s  Status: alive, 26ms
    Fingerprint: 0123456789abcdef0123
    Sequence: 1-10#0,1
    NextHop: 10.0.0.1:30001
    Expires: 2026-01-02T04:34:05Z (1h30m0s)
[1] fedcba98  [1-10 1>2 1-20]  MTU: 9000  Latency: ?  Bandwidth: ?  Status: scmp (interface down: 1-10#1)
`,
	} {
		var b bytes.Buffer
		l.print(&terminal.Printer{W: &b}, extended, now)
		if got := b.String(); !strings.HasPrefix(got, want) {
			t.Errorf("extended %t:\n%s\nwant\n%s", extended, got, want)
		}
	}
}

func TestPathsVerdict(t *testing.T) {
	alive, dead := pathReport{Status: "alive"}, pathReport{Status: "timeout"}
	for _, tt := range []struct {
		paths  []pathReport
		probed bool
		code   int
	}{
		{nil, false, 1}, {nil, true, 1}, {[]pathReport{dead}, false, 0}, {[]pathReport{dead}, true, 1}, {[]pathReport{dead, alive}, true, 0},
	} {
		err := (&pathList{Paths: tt.paths}).verdict(tt.probed)
		if code := program.Code(err); code != tt.code {
			t.Errorf("%v, probed %t: exit code %d, want %d", tt.paths, tt.probed, code, tt.code)
		}
	}
}

func TestPathsCommandErrors(t *testing.T) {
	for _, tt := range []struct {
		args []string
		part string
	}{
		{nil, "destination"},
		{[]string{"1-ff00:0:111", "1-ff00:0:112"}, "destination"},
		{[]string{"x"}, "ISD-AS"},
		{[]string{"1-ff00:0:111", "--config-dir", "/nowhere"}, "/nowhere"},
		{[]string{"1-ff00:0:111", "--sciond", "127.0.0.1:1"}, "127.0.0.1:1"},
	} {
		code, out, said := ends(t, t.TempDir(), append([]string{"paths"}, tt.args...)...)
		if code == 0 || !strings.Contains(said, tt.part) {
			t.Errorf("%v: error %s, want one about %q\n%s", tt.args, said, tt.part, out)
		}
	}
}
