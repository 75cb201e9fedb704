package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/testbed/soak"
)

func soakCommand() *cli.Command {
	return &cli.Command{
		Name: "soak",
		Usage: "run downloads through faults and hostile peers, and check that braid keeps its " +
			"promises",
		Description: "The faults depend on --seed and --minutes only. If a promise is broken, " +
			"the exit code is 1, and the error message contains the seed and the directory with " +
			"the logs.",
		Flags: []cli.Flag{
			seedFlag("number `N` that selects the faults"),
			&cli.FloatFlag{
				Name:  "minutes",
				Value: 2,
				Usage: "cause faults for `M` minutes; start and end take about one minute more",
			},
			flags.Bool("plan", "print the plan of faults and downloads, and exit"),
			scionBinFlag(),
			flags.Bool("json", "print the result, or the plan, as one JSON object"),
		},
		Action: runSoak,
	}
}

func runSoak(ctx context.Context, c *cli.Command) error {
	seed, length := c.Uint64("seed"), time.Duration(c.Float("minutes")*float64(time.Minute))
	if length < soak.LeastLength || length > 24*time.Hour {
		return program.UsageErrorf("--minutes %v: want %.1f to 1440",
			c.Float("minutes"), soak.LeastLength.Minutes())
	}
	if plan := soak.NewPlan(seed, length); c.Bool("plan") {
		if c.Bool("json") {
			return terminal.PrintObjects(terminal.Stdout(c), plan)
		}
		for _, f := range plan.Faults {
			terminal.Stdout(c).Printf("%v\n", f)
		}
		for _, d := range plan.Downloads {
			terminal.Stdout(c).Printf("%v\n", d)
		}
		return nil
	}
	braid, err := findBraid(c)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "braid-soak-")
	if err != nil {
		return fmt.Errorf("soak: %w", err)
	}
	result, err := soak.Run(ctx, soak.Options{
		Seed: seed, Length: length, Dir: dir, Braid: braid, SCIONBin: c.String("scion-bin"),
		Say: func(line string) { terminal.Stderr(c).Say("soak", line) },
	})
	if c.Bool("json") {
		if e := terminal.PrintObjects(terminal.Stdout(c), result); e != nil {
			return e
		}
	} else {
		result.Table(terminal.Stdout(c))
	}
	if ctx.Err() != nil { // no promise is broken
		return errors.Join(ctx.Err(), os.RemoveAll(dir))
	}
	if err != nil {
		return fmt.Errorf("soak: %w\nrepeat it with --seed %d --minutes %v; the logs are in %s",
			err, seed, c.Float("minutes"), dir)
	}
	return os.RemoveAll(dir)
}
