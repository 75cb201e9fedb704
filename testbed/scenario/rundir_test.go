package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"braid/testbed"
)

// A run directory is read as far as it goes, and one that no runner has written is refused.
func TestOpenRunDir(t *testing.T) {
	s, err := parseText(whole)
	if err != nil {
		t.Fatal(err)
	}
	good := func() About { return about("braid", []Scenario{s}) }
	result := Result{Scenario: "test", Variant: "adaptive", Run: 2, Figures: map[string]float64{"e": .9, "seconds": 10}, Limit: []LimitStep{{0, 5}, {1, 6}}}
	put := func(t *testing.T, dir string, a About, results map[string]Result) {
		t.Helper()
		write := func(name string, v any) {
			b, err := json.Marshal(v)
			if err == nil {
				err = os.MkdirAll(filepath.Dir(name), 0o755)
			}
			if err == nil {
				err = os.WriteFile(name, b, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		write(filepath.Join(dir, runFile), a)
		for where, r := range results {
			write(filepath.Join(dir, where, resultFile), r)
		}
	}

	dir := t.TempDir()
	put(t, dir, good(), map[string]Result{"test/adaptive/2": result})
	// Interrupted, and what is not a run.
	for _, d := range []string{"test/adaptive/1", "test/adaptive/3x", "test/adaptive/03", "test/elsewhere/1"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r, err := OpenRunDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 1 || r.Results[0].Run != 2 || len(r.Scenarios) != 1 || len(r.Scenarios[0].Variants) != 1 || r.Scenarios[0].Size != s.Size {
		t.Errorf("%+v", r)
	}
	if _, err := r.Record(r.Results[0]); err == nil {
		t.Error("samples that are not there")
	}

	change := func(do func(*About)) About { a := good(); do(&a); return a }
	with := func(do func(*Result)) map[string]Result {
		x := result
		do(&x)
		return map[string]Result{"test/adaptive/2": x}
	}
	for _, tt := range []struct {
		name    string
		about   About
		results map[string]Result
		says    string
	}{
		{"nothing done", good(), nil, "no run"},
		{"a name that leads out", change(func(a *About) { a.Scenarios[0].Name = "../test" }), with(func(*Result) {}), "no name for a folder"},
		{"a name with a folder", change(func(a *About) { a.Scenarios[0].Name = "a/b" }), with(func(*Result) {}), "no name for a folder"},
		{"a scenario that is none", change(func(a *About) { a.Scenarios[0].Text = "about: x" }), with(func(*Result) {}), "scenario test"},
		{"another run's result", good(), with(func(r *Result) { r.Run = 3 }), "is not the result of"},
		{"a figure that is none", good(), with(func(r *Result) { r.Figures = map[string]float64{"e": 1e300} }), "out of bounds"},
		{"a limit that goes back in time", good(), with(func(r *Result) { r.Limit = []LimitStep{{5, 1}, {1, 1}} }), "not one over time"},
		{"a link that is faster than time", change(func(a *About) { a.Scenarios[0].Topology[0].Delay = -1 }), with(func(*Result) {}), "link delay"},
		{"more links than a network has", change(func(a *About) {
			a.Scenarios[0].Topology = slices.Repeat(a.Scenarios[0].Topology, 5000)
		}), with(func(*Result) {}), "links"},
		{"a scale of nothing", change(func(a *About) { a.Scenarios[0].Scale = -1 }), with(func(*Result) {}), "scale"},
	} {
		dir := t.TempDir()
		put(t, dir, tt.about, tt.results)
		if _, err := OpenRunDir(dir); err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v, want something on %q in %s", tt.name, err, tt.says, dir)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, runFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRunDir(dir); err == nil || !strings.Contains(err.Error(), "read run directory "+dir) {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := OpenRunDir(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no run directory") {
		t.Errorf("an empty directory: %v", err)
	}
}

// Runs may be more than a file can ask for: testbed run --runs 2000.
func TestManyRuns(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "test", "default", "2000")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	r := Result{Scenario: "test", Variant: "default", Run: 2000}
	if err := testbed.WriteJSON(filepath.Join(at, resultFile), r); err != nil {
		t.Fatal(err)
	}
	if results, err := readResults(dir, "test", "default"); err != nil || len(results) != 1 {
		t.Errorf("%v, %v", results, err)
	}
}

// A run that was copied to another place is not a run of its own.
func TestCopiedRun(t *testing.T) {
	s, err := parseText(foldText)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	at := filepath.Join(dir, "test", "default", "1")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := testbed.WriteJSON(filepath.Join(at, resultFile), Result{Scenario: "test", Variant: "default", Run: 2}); err != nil {
		t.Fatal(err)
	}
	results, err := Run(t.Context(), []Scenario{s}, Options{Dir: dir, Runs: 1, Say: func(string) {}})
	if err == nil || !strings.Contains(err.Error(), "is not the result of") {
		t.Errorf("%v, %v", results, err)
	}
}

// The command itself says that it was interrupted.
func TestInterruptedRunSaysNothing(t *testing.T) {
	s, err := parseText(foldText)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var said []string
	results, err := Run(ctx, []Scenario{s}, Options{Dir: t.TempDir(), Runs: 2, Say: func(line string) { said = append(said, line) }})
	if len(results) > 0 || !errors.Is(err, context.Canceled) || len(said) > 0 {
		t.Errorf("%v, %v, said %q", results, err, said)
	}
}

// The table of a run directory keeps the runs that a later command does not ask for.
func TestSummaryKeepsEarlierRuns(t *testing.T) {
	s, err := parseText(foldText)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for run, e := range []float64{.8, .9} {
		at := filepath.Join(dir, "test", "default", fmt.Sprint(run+1))
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		r := Result{Scenario: "test", Variant: "default", Run: run + 1, Figures: map[string]float64{"e": e}}
		if err := testbed.WriteJSON(filepath.Join(at, resultFile), r); err != nil {
			t.Fatal(err)
		}
	}
	results, err := Run(t.Context(), []Scenario{s}, Options{Dir: dir, Runs: 1, Say: func(string) {}})
	if err != nil || len(results) != 1 {
		t.Fatalf("%v, %v", results, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, csvFile))
	if err != nil || !strings.Contains(string(b), "test,default,2,false,e,0.9") {
		t.Errorf("%s, %v", b, err)
	}
}

// A scenario may be edited until a run of it is finished.
func TestEditedScenario(t *testing.T) {
	s, err := parseText(whole)
	if err != nil {
		t.Fatal(err)
	}
	edited := s
	edited.Seed++
	o := Options{Dir: t.TempDir()}
	for _, x := range []Scenario{s, edited} {
		if err := writeRun(o, []Scenario{x}); err != nil {
			t.Fatal(err)
		}
	}
	var now About
	if err := readJSON(filepath.Join(o.Dir, runFile), maxRunFile, &now); err != nil || now.Scenarios[0].Seed != edited.Seed {
		t.Errorf("%+v, %v", now.Scenarios, err)
	}
	run := runIn(o.Dir, s.Name, "adaptive", 1)
	if err := os.MkdirAll(run, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run, resultFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeRun(o, []Scenario{edited}); err != nil {
		t.Errorf("the same scenario: %v", err)
	}
	if err := writeRun(o, []Scenario{s}); err == nil {
		t.Error("another scenario, although there is a run")
	}
}
