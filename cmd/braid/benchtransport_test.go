//go:build !small

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestBenchDownloads has all clients of the benchmark download something inside one AS; the
// benchmark itself compares what arrives, and would fail.
func TestBenchDownloads(t *testing.T) {
	t.Parallel()
	code, out, said := ends(t, t.TempDir(), "bench", "transport", "--json", "--quiet", "--runs", "1", "--size", "1MiB", "--routers", "none",
		"--mtu", "1400", "--case", "braid-scion", "--case", "braid-tcp", "--case", "aria2-tcp")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	var cases []string
	for line := range strings.Lines(out) {
		var r struct {
			Case   string  `json:"case"`
			MbitS  float64 `json:"mbit_s"`
			Runs   int     `json:"runs"`
			Failed int     `json:"failed"`
			CPU    struct {
				Client float64 `json:"client"`
			} `json:"cpu_s_per_gb"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		cases = append(cases, r.Case)
		if r.Runs != 1 || r.Failed != 0 || r.MbitS <= 0 || r.CPU.Client <= 0 {
			t.Errorf("%s", line)
		}
	}
	if want := []string{"aria2-tcp", "braid-tcp", "braid-scion"}; !slices.Equal(cases, want) {
		t.Errorf("cases %q, want %q; %s", cases, want, said)
	}
}

func TestBenchOfNothing(t *testing.T) {
	code, _, said := ends(t, t.TempDir(), "bench", "transport", "--case", "teleport")
	if code != 1 || !strings.Contains(said, "no case matches the selection") {
		t.Errorf("exit code %d: %s", code, said)
	}
}
