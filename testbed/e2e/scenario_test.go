package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"braid/testbed/scenario"
)

// Shipped scenarios with a tenth of the data and of the time: everything that a scenario can do happens, every byte is
// right, and what is to be measured is. How well braid does is for scripts/bench.
func TestScenarios(t *testing.T) {
	if testing.Short() {
		t.Skip("starts SCION networks")
	}
	braid := filepath.Join(t.TempDir(), "braid")
	if out, err := exec.Command("go", "build", "-o", braid, "braid/cmd/braid").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var all []scenario.Scenario
	for _, c := range []struct {
		name    string
		variant []string
	}{
		{"two-paths", []string{"adaptive", "first"}},
		{"shared-rival", []string{"adaptive"}},
		{"congestion-one", []string{"adaptive"}},
		{"cut", []string{"adaptive"}},
		{"router-pause", []string{"adaptive"}},
		{"early-leaver", []string{"adaptive"}},
	} {
		s, err := scenario.Load(c.name)
		if err == nil {
			s, err = s.Only(c.variant)
		}
		if err == nil {
			s, err = s.Scaled(0.1)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	dir := t.TempDir()
	o := scenario.Options{Dir: dir, Runs: 1, Braid: braid, SCIONBin: programs(t), Say: func(s string) { t.Log(s) }}
	results, err := scenario.Run(t.Context(), all, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		// Who is to leave early may be done before.
		if r.Failed != "" || r.Verified == 0 || r.Verified != r.Leechers {
			t.Errorf("%s %s: %d of %d leechers have the data, %q", r.Scenario, r.Variant, r.Verified, r.Leechers, r.Failed)
		}
		if e := r.Figures["e"]; e <= 0 || e > 1.02 {
			t.Errorf("%s %s: %v of the limit", r.Scenario, r.Variant, e)
		}
		if _, bulk := map[string]bool{"shared-rival": true}[r.Scenario]; len(r.Limit) == 0 || len(r.Peers) == 0 || (r.Figures["over-t-star"] >= 1/1.02) == bulk {
			t.Errorf("%s %s: the limit over time %v, leechers %v, figures %v", r.Scenario, r.Variant, r.Limit, r.Peers, r.Figures)
		}
		kinds := sampleKinds(t, filepath.Join(dir, r.Scenario, r.Variant, "1", "samples.jsonl"))
		for _, k := range []string{"peer", "link", "process", "path", "event start"} {
			if kinds[k] == 0 {
				t.Errorf("%s %s: no sample of a %s in %v", r.Scenario, r.Variant, k, kinds)
			}
		}
		if events := kinds["event link"] + kinds["event pause"]; (events > 0) != (r.Scenario == "cut" || r.Scenario == "router-pause") {
			t.Errorf("%s %s: %d events", r.Scenario, r.Variant, events)
		}
		if flows := kinds["traffic"] + kinds["event traffic"]; (flows > 0) != (r.Scenario == "shared-rival" || r.Scenario == "congestion-one") {
			t.Errorf("%s %s: %d samples of traffic", r.Scenario, r.Variant, flows)
		}
	}
	for _, s := range scenario.Summarise(all, results) {
		if s.Scenario == "shared-rival" && s.Figures["share"].Median <= 0 {
			t.Errorf("the rival got nothing: %+v", s.Figures)
		}
	}

	// Once more: everything is there.
	for _, name := range []string{"run.json", "summary.csv"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	o.SCIONBin = filepath.Join(dir, "nothing")
	again, err := scenario.Run(t.Context(), all, o)
	if err != nil || len(again) != len(results) {
		t.Errorf("a complete run directory: %d results, %v", len(again), err)
	}
	// Other scenarios do not mix with these.
	if _, err := scenario.Run(t.Context(), all[:1], o); err == nil {
		t.Error("other scenarios in the same run directory")
	}
}

func sampleKinds(t *testing.T, name string) map[string]int {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	kinds := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for last := 0.0; lines.Scan(); {
		var l struct {
			T    float64
			Kind string
			What string
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		if l.T < last-1 {
			t.Errorf("%s: %v s after %v s", name, l.T, last)
		}
		last = l.T
		if l.Kind == "event" {
			l.Kind += " " + l.What
		}
		kinds[l.Kind]++
	}
	return kinds
}
