package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v3"

	"braid/pathsel"
	"braid/scionnet"
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
		l.print(&printer{w: &b}, extended, now)
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
		if code := exitCode(err); code != tt.code {
			t.Errorf("%v, probed %t: exit code %d, want %d", tt.paths, tt.probed, code, tt.code)
		}
	}
}

// runPathsCommand runs 'braid paths' in this process.
func runPathsCommand(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	root := &cli.Command{
		Name: "braid", Writer: &printer{w: &out}, ErrWriter: &printer{w: &out}, Commands: []*cli.Command{pathsCommand()},
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
	}
	err := root.Run(ctx, append([]string{"braid", "paths"}, args...))
	return out.String(), err
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
		out, err := runPathsCommand(t.Context(), tt.args...)
		if err == nil || !strings.Contains(err.Error(), tt.part) {
			t.Errorf("%v: error %v, want one about %q\n%s", tt.args, err, tt.part, out)
		}
	}
}

// TestPathsLikeShowpaths compares with the scion tool on a real network: whatever key both have
// must mean the same.
func TestPathsLikeShowpaths(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	t.Parallel()
	n, src, dst := startNetwork(t, "two-paths")
	where := []string{"--config-dir", n.ConfigDir(src), "--local", n.HostIP(src).String()}

	theirs, err := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(scionBin), "scion"), append([]string{"showpaths", dst.String(), "--format", "json"}, where...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := runPathsCommand(t.Context(), append([]string{dst.String(), "--json", "--probe"}, where...)...)
	if err != nil {
		t.Fatal(err)
	}
	a, b := decode(t, theirs), decode(t, []byte(ours))
	compareKeys(t, "", a, b)

	soon(t, "two paths that are alive", func() bool { // within five seconds
		out, err := runPathsCommand(t.Context(), append([]string{dst.String(), "--probe", "-e"}, where...)...)
		return err == nil && strings.Count(out, "Status: alive") == 2
	})
	out, err := runPathsCommand(t.Context(), append([]string{src.String(), "--probe"}, where...)...)
	if err != nil || !strings.Contains(out, "local") {
		t.Errorf("own AS: %v\n%s", err, out)
	}
	out, err = runPathsCommand(t.Context(), append([]string{"9-9", "--json"}, where...)...)
	if exitCode(err) != exitFailed || decode(t, []byte(out))["destination"] != "9-9" {
		t.Errorf("AS that does not exist: %v\n%s", err, out)
	}
	if _, err = runPathsCommand(t.Context(), append([]string{"9-9"}, where...)...); !errors.Is(err, scionnet.ErrNoPath) {
		t.Errorf("AS that does not exist: error %v, want ErrNoPath", err)
	}
	// The network does not have this link. Only the network knows that.
	dir, _, _ := strings.Cut(n.ConfigDir(src), "/gen/")
	code, _, said := ends(t, t.TempDir(), "testbed", "link", "1-ff00:0:110#99", "--down", "-d", dir)
	if code != exitUsage || !strings.Contains(said, "no link of topology two-paths ends at 1-ff00:0:110#99") {
		t.Errorf("a link that does not exist: exit code %d: %s", code, said)
	}
}

func decode(t *testing.T, b []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v in\n%s", err, b)
	}
	return v
}

func compareKeys(t *testing.T, at string, theirs, ours any) {
	t.Helper()
	switch a := theirs.(type) {
	case map[string]any:
		b, _ := ours.(map[string]any)
		for k, v := range a {
			switch k {
			case "discovery": // control services on the way: not about paths
			case "expiry":
				x, err1 := time.Parse(time.RFC3339, v.(string))
				y, err2 := time.Parse(time.RFC3339, b[k].(string))
				if d := x.Sub(y).Abs(); err1 != nil || err2 != nil || d > time.Minute {
					t.Errorf("%s.%s: %v and %v", at, k, v, b[k])
				}
			default:
				compareKeys(t, at+"."+k, v, b[k])
			}
		}
	case []any:
		b, _ := ours.([]any)
		if len(a) != len(b) {
			t.Errorf("%s: %d elements, braid has %d", at, len(a), len(b))
			return
		}
		for i := range a {
			compareKeys(t, at, a[i], b[i])
		}
	default:
		if !reflect.DeepEqual(theirs, ours) {
			t.Errorf("%s: scion has %v, braid %v", at, theirs, ours)
		}
	}
}
