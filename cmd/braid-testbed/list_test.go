package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"braid/commands/terminal"
	"braid/testbed/scenario"
)

// The list of all shipped scenarios fits on a terminal, and names everything; JSON has every
// variant.
func TestListScenarios(t *testing.T) {
	var all []scenario.Scenario
	for _, n := range scenario.Shipped() {
		s, err := scenario.Load(n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	var people, machines strings.Builder
	if err := listScenarios(&terminal.Printer{W: &people}, all, 2, false); err != nil {
		t.Fatal(err)
	}
	if err := listScenarios(&terminal.Printer{W: &machines}, all, 2, true); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(people.String()) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > listWidth {
			t.Errorf("too wide: %q", line)
		}
	}
	words := strings.Join(strings.Fields(people.String()), " ")
	entries := strings.Split(strings.TrimSpace(machines.String()), "\n")
	if len(entries) != len(all) {
		t.Fatalf("%d lines for %d scenarios", len(entries), len(all))
	}
	for i, line := range entries {
		var e scenarioEntry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if s := all[i]; e.Name != s.Name || e.About != s.About || len(e.Variants) != len(s.Variants) || e.Runs != 2 || e.Seconds != s.Estimate(2).Seconds() {
			t.Errorf("%+v", e)
		}
		if !strings.Contains(words, e.Name+" ") || !strings.Contains(words, e.About) || len(e.Variants) > 1 && !strings.Contains(words, e.Variants[0]) {
			t.Errorf("%s is not in the list as it should be", e.Name)
		}
	}
}

func TestShortened(t *testing.T) {
	for _, tt := range []struct {
		width int
		want  string
	}{{15, "one, two, three"}, {14, "one, … 2 more"}, {13, "one, … 2 more"}, {12, "3 names"}} {
		if got := shortened([]string{"one", "two", "three"}, tt.width); got != tt.want {
			t.Errorf("%d columns: %q, want %q", tt.width, got, tt.want)
		}
	}
}
