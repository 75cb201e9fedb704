package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/terminal"
	"braid/testbed/bench"
	"braid/testbed/trackerbench"
)

func benchTrackerCommand() *cli.Command {
	return &cli.Command{
		Name: "tracker",
		Usage: "announces per second, memory, slow clients, and what the tracker still knows " +
			"after it was killed",
		Description: `The tracker and the load generator are processes, each pinned to one core
(Linux; -1 for any core). The cases of a run follow each other, so that they have the same machine;
opentracker is among them if it is installed. "per CPU second" is what the tracker would answer in a
second of CPU time, whether the generator keeps up or not.

Cases: http (connections are kept), http-close, udp (8 clients with 32 announces under way each),
udp-apart (256 clients with one each), scion (HTTP/3); and memory (a million peers in 100 000
swarms), slow (5000 half-open requests), kill (100 000 peers, 1000 announces a second, kill -9).`,
		Flags: []cli.Flag{
			benchJSONFlag(),
			flags.Time("duration", 5*time.Second, "run each load for `TIME`"),
			flags.Count("runs", 3, "measure every load `N` times"),
			coreFlag("tracker-core", 0, "run the tracker on core `N` (default: the first)"),
			coreFlag("load-core", 1, "run the generator on core `N`"),
			flags.List("case", "only this `CASE` (repeatable)"),
		},
		Action: benchAction(benchTracker),
	}
}

// coreFlag wants the number of a core, or -1 for any.
func coreFlag(name string, value int, usage string) cli.Flag {
	return &cli.IntFlag{Name: name, Value: value, Usage: usage,
		Validator: flags.AtLeast(bench.AnyCore)}
}

// trackerTrials are the cases that measure something other than a rate.
var trackerTrials = []string{"memory", "slow", "kill"}

func benchTracker(ctx context.Context, b benchmark) error {
	braid, err := findBraid(b.Command)
	if err != nil {
		return err
	}
	load := trackerbench.Bench{
		Braid: braid, Generator: b.worker("tracker-load"), Dir: b.dir,
		TrackerCore: b.Int("tracker-core"), GeneratorCore: b.Int("load-core"),
	}
	if load.Opentracker, err = exec.LookPath("opentracker"); err != nil {
		b.progress("opentracker is not installed and left out")
	}
	cases, names := trackerbench.Cases(load.Opentracker != ""), slices.Clone(trackerTrials)
	for _, c := range cases {
		names = append(names, c.Transport)
	}
	names = chosen(b.Reader, "case", names, func(name string) string { return name })
	if b.Err != nil {
		return b.Err
	}
	isLeftOut := func(c trackerbench.Case) bool { return !slices.Contains(names, c.Transport) }
	cases = slices.DeleteFunc(cases, isLeftOut)
	if err := benchTrackerRates(ctx, b, load, cases); err != nil {
		return err
	}
	for _, name := range trackerTrials {
		if !slices.Contains(names, name) {
			continue
		}
		result, text, err := benchTrackerTrial(ctx, b, load, name)
		if err == nil {
			object := map[string]any{"trial": name, "result": result}
			err = terminal.PrintResult(b.Command, object, "\n%s: %s\n", name, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func benchTrackerRates(
	ctx context.Context, b benchmark, load trackerbench.Bench, cases []trackerbench.Case,
) error {
	if len(cases) == 0 {
		return nil
	}
	if !b.Bool("json") {
		fmt.Fprintf(terminal.Stdout(b.Command),
			"tracker on core %d, generator on core %d, median of %d runs of %v\n\n",
			load.TrackerCore, load.GeneratorCore, b.Int("runs"), b.Duration("duration"))
	}
	table := b.rows("tracker\ttransport\tunder way\tannounces/s\tper CPU second\t" +
		"p50 ms\tp99 ms\tlost\t")
	measure := func(_, i int) (trackerbench.Row, error) {
		r, err := load.Measure(ctx, cases[i], b.Duration("duration"))
		if err == nil && b.Bool("json") {
			table.Add(r, "")
		}
		return r, err
	}
	emit := func(i int, rows []trackerbench.Row) {
		if b.Bool("json") {
			return // each row is written already
		}
		c := cases[i]
		of := func(f func(trackerbench.Row) float64) float64 { return bench.Median(rows, f) }
		table.Add(nil, "%s\t%s\t%d\t%.0f\t%.0f\t%.2f\t%.2f\t%.0f\t",
			c.Tracker, c.Transport, c.Window,
			of(func(r trackerbench.Row) float64 { return r.Rate }),
			of(func(r trackerbench.Row) float64 { return r.PerCPU }),
			of(func(r trackerbench.Row) float64 { return r.P50 }),
			of(func(r trackerbench.Row) float64 { return r.P99 }),
			of(func(r trackerbench.Row) float64 { return float64(r.Lost) }))
	}
	return table.End(bench.Turns(ctx, b.Int("runs"), len(cases), measure, emit))
}

// benchTrackerTrial runs a trial, and returns its result and the result in words.
func benchTrackerTrial(
	ctx context.Context, b benchmark, load trackerbench.Bench, name string,
) (result any, text string, err error) {
	switch name {
	case "memory":
		r, err := load.Memory(ctx, 100_000)
		return r, fmt.Sprintf("%.0f bytes for each of %d peers in %d swarms",
			r.BytesPerPeer, r.Peers, r.Swarms), err
	case "slow":
		r, err := load.Slow(ctx, 5000, b.Int("runs"), b.Duration("duration"))
		return r, fmt.Sprintf("p99 of honest announces %.2f ms (p50 %.2f) beside %d half-open "+
			"requests, %.2f ms (p50 %.2f) without: ratio %.2f",
			r.BesideP99, r.BesideP50, r.Slow, r.AloneP99, r.AloneP50, r.Ratio), err
	default:
		k := trackerbench.KillTrial{
			Swarms: 10_000,
			Rate:   1000,
			For:    5 * time.Second,
			Sync:   time.Second,
			Margin: time.Second,
		}
		r, err := load.Kill(ctx, k)
		return r, fmt.Sprintf("%d of %d peers lost that were acknowledged more than %.0f s "+
			"before, %d of %d later ones; ready again after %.2f s",
			r.Lost, r.Acknowledged, r.Margin, r.LaterLost, r.Later, r.Ready), err
	}
}
