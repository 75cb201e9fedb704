package main

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/terminal"
	"braid/testbed/scenario"
)

// scenarioEntry is a scenario of `testbed run --list --json`.
type scenarioEntry struct {
	Name     string   `json:"name"`
	About    string   `json:"about"`
	Runs     int      `json:"runs"`
	Variants []string `json:"variants"`
	Seconds  float64  `json:"seconds"` // about
}

// listScenarios lists the scenarios, and about how long each takes with so many runs (0: the number
// in the scenario).
func listScenarios(out *terminal.Printer, all []scenario.Scenario, runs int, asJSON bool) error {
	var list []scenarioEntry
	var whole time.Duration
	for _, s := range all {
		takes := s.Estimate(runs)
		whole += takes
		e := scenarioEntry{s.Name, s.About, s.Runs, nil, takes.Seconds()}
		if runs > 0 {
			e.Runs = runs
		}
		for _, v := range s.Variants {
			e.Variants = append(e.Variants, v.Name)
		}
		list = append(list, e)
	}
	if asJSON {
		return terminal.PrintObjects(out, list...)
	}
	for _, e := range list {
		e.print(out)
	}
	out.Printf("All of them take about %s.\n", roughly(whole))
	return nil
}

const (
	listWidth  = 100 // columns
	listIndent = "    "
)

// print writes the scenario for people. If the variants do not fit on a line, it counts the rest.
func (e scenarioEntry) print(out *terminal.Printer) {
	takes := roughly(time.Duration(e.Seconds * float64(time.Second)))
	head := fmt.Sprintf("%-18s %s, about %s", e.Name, terminal.Plural(e.Runs, "run"), takes)
	tail := ""
	if len(e.Variants) > 1 {
		head = fmt.Sprintf("%-18s %s × %s, about %s",
			e.Name, terminal.Plural(len(e.Variants), "variant"), terminal.Plural(e.Runs, "run"),
			takes)
		tail = listIndent + shortened(e.Variants, listWidth-len(listIndent)) + "\n"
	}
	fmt.Fprintf(out, "%s\n%s%s\n",
		head, terminal.Hanging(listIndent, len(listIndent), e.About, listWidth), tail)
}

// roughly rounds a time, since it is only an estimate.
func roughly(d time.Duration) string {
	if d >= 10*time.Minute {
		s := d.Round(time.Minute).String()
		return strings.TrimSuffix(s, "0s")
	}
	return d.Round(time.Second).String()
}

// shortened returns the part of the list that fits, and how many names are left out.
func shortened(names []string, width int) string {
	for n := len(names); n > 0; n-- {
		text := strings.Join(names[:n], ", ")
		if n < len(names) {
			text += fmt.Sprintf(", … %d more", len(names)-n)
		}
		if utf8.RuneCountInString(text) <= width {
			return text
		}
	}
	return fmt.Sprintf("%d names", len(names))
}

func showCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "print a topology or a scenario that comes with braid, to start from",
		ArgsUsage: "TOPOLOGY|SCENARIO",
		ArgValidator: flags.Arguments(1, 1, "name one topology or scenario; "+
			"braid-testbed up --help and braid-testbed run --list name them"),
		Action: func(_ context.Context, c *cli.Command) error {
			text, err := scenario.ShippedText(c.Args().First())
			if err != nil {
				return err
			}
			_, err = terminal.Stdout(c).Write(text)
			return err
		},
	}
}
