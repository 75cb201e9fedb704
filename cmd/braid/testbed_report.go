package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v3"

	"braid/testbed/report"
	"braid/testbed/scenario"
)

func testbedReportCommand() *cli.Command {
	return &cli.Command{
		Name:      "report",
		Usage:     "make a report of a run directory: a page that opens offline, figures, tables",
		ArgsUsage: "RUNDIR",
		Description: "Writes index.html, which needs nothing else, each figure as SVG and PNG below figures/, and all tables as Markdown in\n" +
			"tables.md. A run directory that is not complete yet is reported as far as it goes.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`DIR`ectory for the report (default: report in RUNDIR)"},
			&cli.BoolFlag{Name: "every-run", Usage: "draw each run, not only the one with the median time of each variant"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object: what was made, and the summary of each scenario and variant"},
		},
		Action: testbedReport,
	}
}

func testbedReport(_ context.Context, c *cli.Command) error {
	if c.NArg() != 1 {
		return usageErrorf("name one run directory; see braid testbed report --help")
	}
	run, err := scenario.OpenRunDir(c.Args().First())
	if err != nil {
		return err
	}
	o := report.Options{Dir: c.String("output"), EveryRun: c.Bool("every-run")}
	if o.Dir == "" {
		o.Dir = filepath.Join(run.Dir, "report")
	}
	made, err := report.Make(run, o)
	if err != nil {
		return fmt.Errorf("make the report: %w", err)
	}
	if c.Bool("json") {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetEscapeHTML(false) // expectations are comparisons
		return encoder.Encode(made)
	}
	fmt.Printf("%s\n%s\n%d figures below %s\n", made.HTML, made.Markdown, len(made.Figures), filepath.Join(made.Dir, "figures"))
	fmt.Printf("%d runs, %d of them CPU-bound; %d expectations missed\n", made.Runs, made.CPUBound, made.Missed)
	return nil
}
