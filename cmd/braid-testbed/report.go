package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/testbed/report"
	"braid/testbed/scenario"
)

func reportCommand() *cli.Command {
	return &cli.Command{
		Name: "report",
		Usage: "make a report of a run directory: a web page for offline use, figures, and " +
			"tables",
		ArgsUsage: "RUNDIR...",
		Description: "Writes a self-contained index.html, each figure as SVG, PNG, PDF, PGF and " +
			"CSV below figures/, and all tables as Markdown in tables.md. The run directory may " +
			"be incomplete.\n\n" +
			"--evaluation regenerates the tables and figures of a document such as " +
			"docs/evaluation.md, and of its chapters docs/evaluation/*.md, and leaves the text " +
			"alone. If several run directories have a scenario, the last one counts; tables of a " +
			"scenario that none of them has stay as they are. docs/experiments.md says how a " +
			"document asks for a table.",
		Flags: []cli.Flag{
			flags.String("output", "", "`DIR` for the report (default: report in RUNDIR)", "o"),
			flags.Bool("every-run", "draw all runs instead of each variant's run with the median "+
				"time"),
			flags.String("evaluation", "", "regenerate the tables of this `DOCUMENT`, and make no "+
				"page"),
			flags.Bool("json", "print one JSON object: the files, and a summary of each scenario "+
				"and variant"),
		},
		Action: makeReport,
	}
}

func makeReport(_ context.Context, c *cli.Command) error {
	if name := c.String("evaluation"); name != "" {
		return evaluate(c, name)
	}
	if c.NArg() != 1 {
		return program.UsageErrorf("name one run directory; see braid-testbed report --help")
	}
	run, err := scenario.OpenRunDir(c.Args().First())
	if err != nil {
		return err
	}
	o := report.Options{
		Dir:      cmp.Or(c.String("output"), filepath.Join(run.Dir, "report")),
		EveryRun: c.Bool("every-run"),
	}
	made, err := report.Make(run, o)
	if err != nil {
		return fmt.Errorf("make the report: %w", err)
	}
	if c.Bool("json") {
		return terminal.PrintObjects(terminal.Stdout(c), made)
	}
	terminal.Stdout(c).Printf("%s\n%s\n%d figures below %s\n",
		made.HTML, made.Markdown, len(made.Figures), filepath.Join(made.Dir, "figures"))
	terminal.Stdout(c).Printf("%s, %d of them CPU-bound; %s missed\n",
		terminal.Plural(made.Runs, "run"), made.CPUBound,
		terminal.Plural(made.Missed, "expectation"))
	for _, m := range made.Missing {
		terminal.Stdout(c).Printf("not drawn: %s\n", m)
	}
	return nil
}

// openRunDirs opens the run directories that the arguments name.
func openRunDirs(c *cli.Command) (runs []scenario.RunDir, err error) {
	for _, dir := range c.Args().Slice() {
		run, err := scenario.OpenRunDir(dir)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

func evaluate(c *cli.Command, document string) error {
	if c.NArg() == 0 {
		return program.UsageErrorf("name the run directories; see braid-testbed report --help")
	}
	if c.IsSet("output") || c.IsSet("every-run") {
		return program.UsageErrorf("--output and --every-run are for the page, " +
			"which --evaluation does not make")
	}
	runs, err := openRunDirs(c)
	if err != nil {
		return err
	}
	made, err := report.Evaluate(document, runs)
	if err != nil {
		return err
	}
	return terminal.PrintResult(c, made, "%s", made)
}

func compareCommand() *cli.Command {
	return &cli.Command{
		Name:      "compare",
		Usage:     "compare two run directories, figure by figure",
		ArgsUsage: "RUN1 RUN2",
		ArgValidator: flags.Arguments(2, 2, "name two run directories; see braid-testbed compare "+
			"--help"),
		Description: "Prints medians, their difference, the spread, and whether chance explains " +
			"the difference; for that, each side needs at least four runs. It also says what " +
			"makes runs incomparable: different machines or scenario files, or runs in which the " +
			"machine was the limit. The exit code is 0 whatever it finds.",
		Flags: []cli.Flag{
			flags.String("output", "", "also write a page with figures to this `DIR`", "o"),
			flags.Bool("json", "print one JSON object"),
		},
		Action: compareRuns,
	}
}

func compareRuns(_ context.Context, c *cli.Command) error {
	runs, err := openRunDirs(c)
	if err != nil {
		return err
	}
	compared := report.Compare(runs[0], runs[1])
	if dir := c.String("output"); dir != "" {
		made, err := compared.Make(dir)
		if err != nil {
			return fmt.Errorf("write the comparison: %w", err)
		}
		terminal.Stderr(c).Printf("%s\n", made.HTML)
	}
	if c.Bool("json") {
		return terminal.PrintObjects(terminal.Stdout(c), compared)
	}
	return compared.Table(terminal.Stdout(c))
}
