package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/testbed/report"
	"braid/testbed/scenario"
)

func testbedReportCommand() *cli.Command {
	return &cli.Command{
		Name:      "report",
		Usage:     "make a report of a run directory: a page that opens offline, figures, tables",
		ArgsUsage: "RUNDIR...",
		Description: "Writes index.html, which needs nothing else, each figure as SVG and PNG below figures/, and all tables as Markdown in\n" +
			"tables.md. A run directory that is not complete yet is reported as far as it goes.\n\n" +
			"--evaluation makes the blocks of a document anew, such as docs/evaluation.md, from as many run directories as you name, and\n" +
			"leaves what is written around them. Of a scenario that several directories have, the last one counts; a block whose\n" +
			"scenario none of them has stays as it is. A block is\n\n" +
			"   <!-- runs\n   scenario: congestion\n   original: {one-scion: 43.6}   # beside ours, by variant; original_is: what it is, if not seconds\n" +
			"   against: one-quic             # times in parts of that variant's\n   figures: [gap-during]         # more columns\n" +
			"   draw: [components, rates one-scion]   # reached, completion, components, any figure, or a variant's rates, selection, network, cpu\n   -->\n   <!-- end of runs -->",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`DIR` for the report (default: report in RUNDIR)"},
			&cli.BoolFlag{Name: "every-run", Usage: "draw each run, not only the one with the median time of each variant"},
			&cli.StringFlag{Name: "evaluation", Usage: "make the blocks of this `DOCUMENT` anew, and no page"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object: what was made, and the summary of each scenario and variant"},
		},
		Action: testbedReport,
	}
}

func testbedReport(_ context.Context, c *cli.Command) error {
	if name := c.String("evaluation"); name != "" {
		return testbedEvaluation(c, name)
	}
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
		encoder := json.NewEncoder(stdout(c))
		encoder.SetEscapeHTML(false) // expectations are comparisons
		return encoder.Encode(made)
	}
	stdout(c).printf("%s\n%s\n%d figures below %s\n", made.HTML, made.Markdown, len(made.Figures), filepath.Join(made.Dir, "figures"))
	stdout(c).printf("%d runs, %d of them CPU-bound; %d expectations missed\n", made.Runs, made.CPUBound, made.Missed)
	return nil
}

func testbedEvaluation(c *cli.Command, document string) error {
	dirs := c.Args().Slice()
	if len(dirs) == 0 {
		return usageErrorf("name the run directories; see braid testbed report --help")
	}
	var runs []scenario.RunDir
	for _, d := range dirs {
		run, err := scenario.OpenRunDir(d)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	made, err := report.Evaluate(document, runs)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return json.NewEncoder(stdout(c)).Encode(made)
	}
	stdout(c).printf("%s: %d blocks made, with %d figures\n", made.Document, len(made.Made), made.Figures)
	for what, names := range map[string][]string{"as they were": made.Kept, "run, but without a block": made.Unplaced} {
		if len(names) > 0 {
			stdout(c).printf("%s: %s\n", what, strings.Join(names, ", "))
		}
	}
	return nil
}
