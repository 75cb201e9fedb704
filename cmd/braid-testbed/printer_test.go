package main

import (
	"io"
	"testing"

	"braid/commands/terminal"
	"braid/commands/terminal/hostile"
	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/demo"
	"braid/testbed/report"
	"braid/testbed/scenario"
)

// Whatever strangers write into any field, a terminal obeys nothing of it, and no line is added.
func TestNothingIsObeyed(t *testing.T) {
	for _, o := range []hostile.Output{
		{Name: "testbed status", Exact: true, Print: func(w io.Writer, text string) error {
			p := &terminal.Printer{W: w}

			printStatus(p, hostile.Filled[testbed.Status](text))
			return printState(p, hostile.Filled[testbed.State](text), false)
		}},
		{Name: "scenarios", Print: func(w io.Writer, text string) error {
			p := &terminal.Printer{W: w}

			hostile.Filled[scenarioEntry](text).print(p)
			return nil
		}},
		{Name: "scenario table", Print: func(w io.Writer, text string) error {
			p := &terminal.Printer{W: w}

			return scenario.Table(p, []scenario.Summary{hostile.Filled[scenario.Summary](text)})
		}},
		{Name: "comparison", Print: func(w io.Writer, text string) error {
			p := &terminal.Printer{W: w}
			return hostile.Filled[report.Comparison](text).Table(p)
		}},
		{Name: "demo", Print: func(w io.Writer, text string) error {
			p := &terminal.Printer{W: w}
			return hostile.Filled[demo.Result](text).Table(p)
		}},
		{Name: "replay", Exact: true, Print: func(w io.Writer, text string) error {
			p := &terminal.Printer{W: w}

			p.Printf("%s\n", decisions(hostile.Filled[[]pathsel.Decision](text)))
			return nil
		}},
	} {
		o.Check(t)
	}
}
