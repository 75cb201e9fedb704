//go:build !small

package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"braid/testbed/report"
)

func testbedCompareCommand() *cli.Command {
	return &cli.Command{
		Name:         "compare",
		Usage:        "compare two run directories, figure by figure",
		ArgsUsage:    "RUN1 RUN2",
		ArgValidator: arguments(2, 2, "name two run directories; see braid testbed compare --help"),
		Description: "Prints medians, their difference, the spread, and whether chance explains " +
			"the difference; for that, each side needs at least four runs. It also says what " +
			"makes runs incomparable: different machines or scenario files, or runs in which the " +
			"machine was the limit. The exit code is 0 whatever it finds.",
		Flags: []cli.Flag{
			stringFlag("output", "", "also write a page with figures to this `DIR`", "o"),
			boolFlag("json", "print one JSON object"),
		},
		Action: testbedCompare,
	}
}

func testbedCompare(_ context.Context, c *cli.Command) error {
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
		stderr(c).printf("%s\n", made.HTML)
	}
	if c.Bool("json") {
		return printObjects(stdout(c), compared)
	}
	return compared.Table(stdout(c))
}
