package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/testbed/scenario"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name: "run",
		Usage: "run scenarios on a SCION network on this machine, and compare the results with " +
			"what the links could carry",
		ArgsUsage: "FILE.yaml|NAME...",
		Description: "--list shows the scenarios that come with braid; " +
			"testbed/scenarios/README.md describes files and figures. If the run directory has " +
			"some of the runs already, only the missing ones are made. Use an idle machine: if " +
			"the machine and not a link is the limit, the run is marked CPU-bound.",
		Flags: []cli.Flag{
			flags.Bool("list", "list the scenarios, and how long each takes"),
			flags.String("output", "", "run directory `DIR`, which keeps everything", "o"),
			flags.Count("runs", 0, "run each variant `N` times (default: what the scenario says)"),
			&cli.FloatFlag{
				Name:  "scale",
				Value: 1,
				Usage: "scale data and times by this `FACTOR` of at most 1, for a quick look",
			},
			flags.Bool("smoke", "only check that everything works: one run of a few variants with "+
				"little data"),
			flags.List("variant", "run only the variants of this `NAME` (repeatable)"),
			scionBinFlag(),
			flags.Bool("json", "print one JSON object for each scenario and variant"),
		},
		Action: program.EndOnHangup(runScenarios),
	}
}

func runScenarios(ctx context.Context, c *cli.Command) error {
	all, err := namedScenarios(c)
	if err != nil {
		return err
	}
	if c.Bool("list") {
		return listScenarios(terminal.Stdout(c), all, c.Int("runs"), c.Bool("json"))
	}
	if c.Bool("smoke") {
		if all, err = scenario.ByNetwork(all); err != nil {
			return err
		}
	}
	if c.String("output") == "" {
		return program.UsageErrorf("name the run directory: -o DIR")
	}
	braid, err := findBraid(c)
	if err != nil {
		return err
	}
	commit, err := commitOf(ctx, braid)
	if err != nil {
		return err
	}
	var whole time.Duration
	for _, s := range all {
		whole += s.Estimate(c.Int("runs"))
	}
	terminal.Stderr(c).Printf("run: %s, about %v if none is finished yet\n",
		terminal.Plural(len(all), "scenario"), roughly(whole))
	results, err := scenario.Run(ctx, all, scenario.Options{
		Dir: c.String("output"), Runs: c.Int("runs"),
		Braid: braid, Lab: ownPath(), Commit: commit, SCIONBin: c.String("scion-bin"),
		Say: func(line string) { terminal.Stderr(c).Say("run", line) },
	})
	if ctx.Err() != nil && err != nil {
		return program.WithCode(fmt.Errorf("interrupted after %s; run the same command again to "+
			"resume",
			terminal.Plural(len(results), "run")), program.Interrupted)
	}
	summaries := scenario.Summarise(all, results)
	if !c.Bool("json") {
		return errors.Join(scenario.Table(terminal.Stdout(c), summaries), err)
	}
	return errors.Join(err, terminal.PrintObjects(terminal.Stdout(c), summaries...))
}

// namedScenarios returns the scenarios that the command line names. --variant, --smoke and --scale
// have changed them. With --list, no name means all scenarios that come with braid.
func namedScenarios(c *cli.Command) (all []scenario.Scenario, err error) {
	names := c.Args().Slice()
	if c.Bool("list") && len(names) == 0 {
		names = scenario.Shipped()
	}
	if len(names) == 0 {
		return nil, program.UsageErrorf("name at least one scenario: a file, or one of %s",
			strings.Join(scenario.Shipped(), ", "))
	}
	seen := map[string]bool{}
	for _, n := range names {
		s, err := scenario.Load(n)
		if err != nil {
			return nil, err
		}
		if seen[s.Name] {
			return nil, program.UsageErrorf("scenario %s is named twice", s.Name)
		}
		seen[s.Name] = true
		if only := c.StringSlice("variant"); len(only) > 0 {
			if s, err = s.Only(only); err != nil {
				return nil, program.UsageErrorf("--variant: %w", err)
			}
		}
		if c.Bool("smoke") {
			if s, err = s.Smoky(); err != nil {
				return nil, err
			}
		}
		if s, err = s.Scaled(c.Float("scale")); err != nil {
			return nil, program.UsageErrorf("--scale: %w", err)
		}
		all = append(all, s)
	}
	return all, nil
}

// commitOf returns the commit that a program braid was built from; "" if it is unknown.
func commitOf(ctx context.Context, braid string) (string, error) {
	version, err := exec.CommandContext(ctx, braid, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w", braid, err)
	}
	_, rest, _ := strings.Cut(string(version), "commit ")
	commit, _, _ := strings.Cut(rest, ",")
	return strings.TrimPrefix(commit, "unknown"), nil
}
