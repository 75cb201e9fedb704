package e2e

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"braid/testbed/report"
	"braid/testbed/scenario"
)

// smokeRuns are all shipped scenarios with little data and time.
func smokeRuns(t *testing.T) (all []scenario.Scenario) {
	t.Helper()
	for _, n := range scenario.Shipped() {
		s, err := scenario.Load(n)
		if err == nil {
			s, err = s.Smoky()
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// The few smoke runs that together do everything that scenarios can do. The one that does most has
// a report.
func TestScenarios(t *testing.T) {
	t.Parallel()
	chosen := cover(candidates(t))
	lanes := lanesOf(t, chosen[1:])
	for _, first := range lanesOf(t, chosen[:1]) {
		lanes["report"] = first
	}
	testScenarios(t, lanes, "report")
}

// All smoke runs of shipped scenarios, with reports.
func TestLargeScenarios(t *testing.T) {
	lanes := lanesOf(t, candidates(t))
	testScenarios(t, lanes, slices.Collect(maps.Keys(lanes))...)
}

// lanesOf divides smoke runs into groups that run beside each other. Runs mostly wait, for limited
// links and the start of networks.
func lanesOf(t *testing.T, chosen []candidate) map[string][]scenario.Scenario {
	t.Helper()
	lanes := map[string][]scenario.Scenario{}
	for _, s := range smokeRuns(t) {
		of := map[string][]string{}
		for _, v := range s.Variants {
			if slices.ContainsFunc(chosen, func(c candidate) bool { return c.scenario == s.Name && c.variant == v.Name }) {
				lane := laneOf(t, s, v)
				of[lane] = append(of[lane], v.Name)
			}
		}
		for lane, variants := range of {
			part, err := s.Only(variants)
			if err != nil {
				t.Fatal(err)
			}
			lanes[lane] = append(lanes[lane], part)
		}
	}
	// The halves have few networks in common.
	for _, lane := range []string{"scion", "ip"} {
		all, err := scenario.ByNetwork(lanes[lane])
		if err != nil {
			t.Fatal(err)
		}
		if half := len(all) / 2; half > 0 {
			lanes[lane], lanes["more-"+lane] = all[half:], all[:half]
		}
	}
	maps.DeleteFunc(lanes, func(_ string, all []scenario.Scenario) bool { return len(all) == 0 })
	return lanes
}

// testScenarios makes smoke runs: everything happens that they describe, every byte is right, and
// what is to be measured is. How well braid does is for scripts/bench.
func testScenarios(t *testing.T, lanes map[string][]scenario.Scenario, reported ...string) {
	if testing.Short() {
		t.Skip("starts SCION networks")
	}
	braid := braidProgram(t)
	for lane, all := range lanes {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			smoke(t, braid, all, slices.Contains(reported, lane))
		})
	}
}

// laneOf says beside which other variants one runs. A client that takes ten seconds whatever there
// is to do, and does next to nothing meanwhile, is patient. Variants without SCION have a lane of
// their own, so that no network of SCION ends for them.
func laneOf(t *testing.T, s scenario.Scenario, v scenario.Variant) string {
	t.Helper()
	if v.Client == "transmission" {
		return "patient"
	}
	s, err := s.In(v.Name)
	if err != nil {
		t.Fatal(err)
	}
	onSCION := func(p scenario.Peer) bool {
		return !slices.Contains([]string{scenario.TCP, scenario.QUIC, scenario.WebRTC}, p.Transport)
	}
	if len(s.Traffic) == 0 && !slices.ContainsFunc(s.Peers, onSCION) {
		return "ip"
	}
	return "scion"
}

func smoke(t *testing.T, braid string, all []scenario.Scenario, reported bool) {
	all, err := scenario.ByNetwork(all)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	o := scenario.Options{Dir: dir, Braid: braid, Lab: labProgram(t), SCIONBin: programs(), Say: func(s string) { t.Log(s) }}
	results, err := scenario.Run(t.Context(), all, o)
	if err != nil {
		t.Fatal(err)
	}
	wanted := 0
	of := map[string]scenario.Scenario{}
	for _, s := range all {
		wanted += len(s.Variants)
		of[s.Name] = s
	}
	if len(results) != wanted {
		t.Errorf("%d runs of %d: is a client missing? ./scripts/install-deps", len(results), wanted)
	}
	for _, r := range results {
		s := of[r.Scenario]
		// Who is to leave early may be done before.
		if r.Failed != "" || r.Verified != r.Leechers || len(s.Peers) > 0 && r.Verified == 0 {
			t.Errorf("%s %s: %d of %d leechers have the data, %q", r.Scenario, r.Variant, r.Verified, r.Leechers, r.Failed)
		}
		// The limit leaves datagrams their whole rate. Who pushes them out of a queue, as TCP with
		// BBR does, gets some of that.
		pushes := slices.ContainsFunc(s.Traffic, func(f scenario.Traffic) bool { return f.Kind == scenario.Datagrams })
		if e, ok := r.Figures["e"]; ok && (e <= 0 || e > 1.02 && !pushes) {
			t.Errorf("%s %s: %v of the limit", r.Scenario, r.Variant, e)
		}
		if x, ok := r.Figures["over-t-star"]; ok && x < 0.98 && !pushes {
			t.Errorf("%s %s: faster than can be, %v of the least time", r.Scenario, r.Variant, x)
		}
		if r.Figures["cpu-emulator"] <= 0 {
			t.Errorf("%s %s: nobody emulated the links: %v", r.Scenario, r.Variant, r.Figures)
		}
		if r.Figures["mbit"] <= 0 || r.Figures["seconds"] <= 0 {
			t.Errorf("%s %s: %v", r.Scenario, r.Variant, r.Figures)
		}
		kinds := sampleKinds(t, filepath.Join(dir, r.Scenario, r.Variant, "1", "samples.jsonl"))
		if (kinds["peer"] > 0) != (len(s.Peers) > 0) || kinds["link"] == 0 || kinds["process"] == 0 {
			t.Errorf("%s %s: samples %v", r.Scenario, r.Variant, kinds)
		}
		if len(s.Peers) > 0 && (kinds["event start"] == 0 || len(r.Peers) == 0) {
			t.Errorf("%s %s: leechers %+v, samples %v", r.Scenario, r.Variant, r.Peers, kinds)
		}
		if _, ok := r.Figures["e"]; ok == (len(r.Limit) == 0) {
			t.Errorf("%s %s: the limit over time %v, figures %v", r.Scenario, r.Variant, r.Limit, r.Figures)
		}
		if (kinds["event link"]+kinds["event pause"] > 0) != (len(s.Events) > 0) || (kinds["traffic"] > 0) != (len(s.Traffic) > 0) {
			t.Errorf("%s %s: samples %v, with %d events and %d flows", r.Scenario, r.Variant, kinds, len(s.Events), len(s.Traffic))
		}
	}
	// Once more: everything is there.
	for _, name := range []string{"run.json", "summary.csv"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	run, err := scenario.OpenRunDir(dir)
	if err != nil || len(run.Results) != len(results) {
		t.Fatalf("the run directory has %d of %d results: %v", len(run.Results), len(results), err)
	}
	// Every figure can be computed again from the files of its run.
	for _, r := range run.Results {
		record, err := run.Record(r)
		if err != nil {
			t.Fatal(err)
		}
		if figures := record.Measures(); !maps.Equal(figures, r.Figures) {
			t.Errorf("%s %s: figures from its files\n%v\ninstead of\n%v", r.Scenario, r.Variant, figures, r.Figures)
		}
	}
	if reported {
		drawReport(t, run)
	}
	if c := report.Compare(run, run); slices.ContainsFunc(c.Rows, func(r report.Compared) bool { return r.Difference != 0 }) || len(c.Missing) > 0 {
		t.Errorf("a run directory differs from itself: %+v", c)
	}
	o.SCIONBin = filepath.Join(dir, "nothing")
	again, err := scenario.Run(t.Context(), all, o)
	if err != nil || len(again) != len(results) {
		t.Errorf("a complete run directory: %d results, %v", len(again), err)
	}
	// Other scenarios do not mix with these.
	other := all[0]
	other.Seed++
	if _, err := scenario.Run(t.Context(), []scenario.Scenario{other}, o); err == nil {
		t.Error("other scenarios in the same run directory")
	}
}

// drawReport makes a report of a run directory: three figures over the runs of a scenario, and four
// of a run with peers.
func drawReport(t *testing.T, run scenario.RunDir) {
	t.Helper()
	dir := t.TempDir()
	made, err := report.Make(run, report.Options{Dir: filepath.Join(dir, "report")})
	if err != nil {
		t.Fatal(err)
	}
	if want := 3*len(run.Scenarios) + 4*len(run.Results); len(made.Figures) != want || made.Runs != len(run.Results) {
		t.Errorf("a report of %d figures and %d runs, want %d and %d", len(made.Figures), made.Runs, want, len(run.Results))
	}
	page := filepath.Join(dir, "evaluation.md")
	if err := os.WriteFile(page, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "evaluation"), os.DirFS(filepath.Join("..", "..", "docs", "evaluation"))); err != nil {
		t.Fatal(err)
	}
	if e, err := report.Evaluate(page, []scenario.RunDir{run}); err != nil || len(e.Made)+len(e.Unplaced) != len(run.Scenarios) {
		t.Errorf("an evaluation of %d scenarios of %d, without a block: %v, %v", len(e.Made), len(run.Scenarios), e.Unplaced, err)
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
	last := map[[3]string]float64{} // of each source
	for lines.Scan() {
		var l struct {
			T              float64
			Kind, What, At string
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		from := [3]string{l.Kind, l.What, l.At}
		if l.T < last[from] {
			t.Errorf("%s: %v: %v s after %v s", name, from, l.T, last[from])
		}
		last[from] = l.T
		if l.Kind == "event" {
			l.Kind += " " + l.What
		}
		kinds[l.Kind]++
	}
	return kinds
}
