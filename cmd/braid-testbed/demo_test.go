package main

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/testbed/demo"
)

// The whole demonstration with little data: both downloads, every byte compared, the result as
// documented.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	for _, name := range []string{"a", "b/c", "b/d"} {
		b := make([]byte, 2<<20)
		rand.NewChaCha8([32]byte{name[0], byte(len(name))}).Read(b)
		if err := os.MkdirAll(filepath.Dir(filepath.Join(data, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Its links are slow, so that a busy machine opens both paths long before the end.
	topology, err := os.ReadFile("../../testbed/topologies/two-paths.topo")
	if err != nil {
		t.Fatal(err)
	}
	slow := filepath.Join(dir, "slow.topo")
	if err := os.WriteFile(slow, bytes.ReplaceAll(topology, []byte("20mbit"), []byte("5mbit")), 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := runs(t, dir, "demo", "--data", data, "--size", "5MB", "--topology", slow, "--json")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var r demo.Result
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	if len(r.Candidates) != 2 || r.Bytes != 5e6 || r.Files != 3 {
		t.Fatalf("%+v", r)
	}
	for i, name := range []string{"single", "multi"} {
		c := r.Candidates[i]
		var sum float64
		for _, p := range c.Paths {
			sum += p.Share
		}
		if c.Name != name || !c.Verified || math.Abs(sum-1) > 1e-9 || c.Seconds <= 0 {
			t.Errorf("candidate %+v, want %s", c, name)
		}
	}
	// While a router stands still, the network does not have its link, and the first path is the
	// other one. But there is never more than one.
	if single := r.Candidates[0]; single.PayloadMbitS > 1.01*r.LimitMbitS/2 {
		t.Errorf("candidate %+v, want one path at a time", single)
	}
	if multi := r.Candidates[1]; len(multi.Paths) != 2 {
		t.Errorf("candidate %+v, want both paths", multi)
	}
	if r.Gain <= 0 || r.LimitFraction <= 0 || r.LimitFraction > 1.01 {
		t.Errorf("gain %v, fraction of the limit %v", r.Gain, r.LimitFraction)
	}
	for _, want := range []string{"is up after", "every byte is right"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("people are not told %q: %s", want, stderr)
		}
	}
	for _, args := range [][]string{
		{"--size", "much"},
		{"--data", filepath.Join(dir, "nothing")},
		{"--topology", "nowhere.topo"},
		{"--data", data, "--topology", "tiny4"},
	} {
		if code, _, stderr := runs(t, dir, append([]string{"demo"}, args...)...); code == 0 || strings.Contains(stderr, "panic") {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
}
