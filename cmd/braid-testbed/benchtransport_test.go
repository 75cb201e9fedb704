package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"braid/commands/program"
)

// TestBenchDownloads has all clients of the benchmark download something inside one AS; the
// benchmark itself compares what arrives, and would fail.
func TestBenchDownloads(t *testing.T) {
	t.Parallel()
	code, out, said := runs(t, t.TempDir(), "bench", "transport", "--json", "--quiet", "--runs", "1", "--size", "1MiB", "--routers", "none",
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

// A case with a typing error is a mistake of the user, and not left out in silence.
func TestBenchUnknownCase(t *testing.T) {
	for line, says := range map[string]string{
		"transport --case tcp --case quick":        `--case "quick": want one of aria2-tcp, braid-scion`,
		"transport --routers none --routers stick": `--routers "stick": want one of fast, none, stock`,
		"transport --mtu 8400 --mtu 140":           `--mtu "140": want one of 1400, 8400`,
		"transport --case tcp --routers fast":      `--routers "fast": want one of none`,
		"storage --downloads --storage tape":       `--storage "tape": want one of bolt, `,
		"dht --case calm --case quiet":             `--case "quiet": want one of attack, calm, `,
		"tracker --case udp --case pigeon":         `--case "pigeon": want one of http, http-close, kill, `,
	} {
		code, _, said := ends(t, t.TempDir(), append([]string{"bench"}, strings.Fields(line)...)...)
		if code != program.Usage || !strings.Contains(said, says) {
			t.Errorf("%s: exit code %d: %s, want %s", line, code, said, says)
		}
	}
}
