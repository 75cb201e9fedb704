package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"braid/tracker/load"
)

func benchTrackerCommand() *cli.Command {
	return &cli.Command{
		Name:  "tracker",
		Usage: "what the tracker bears: announces per second, memory, slow clients, and what it knows after it was killed",
		Description: `Tracker and generator of load are processes of their own, each pinned to one core (Linux; -1 for anywhere). The cases of
a run follow each other, so that they have the same machine; if opentracker is installed, it is one of them. "per CPU
second" is what the tracker would answer in a second that it has for itself, whether the generator keeps up or not.

Cases: http (connections are kept), http-close, udp (8 clients with 32 announces under way each), udp-apart (256 clients with
one each), scion (HTTP/3), and memory (a million peers in 100 000 swarms), slow
(5000 half-open requests), kill (100 000 peers, 1000 announces a second, kill -9).`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Aliases: []string{"j"}, Usage: "write one JSON object for each measurement"},
			&durationFlag{Name: "duration", Value: 5 * time.Second, Usage: "of each load"},
			&cli.IntFlag{Name: "runs", Value: 3, Usage: "measure every load `N` times"},
			&cli.IntFlag{Name: "tracker-core", Value: 0, Usage: "run the tracker on core `N`"},
			&cli.IntFlag{Name: "load-core", Value: 1, Usage: "run the generator on core `N`"},
			&cli.StringSliceFlag{Name: "case", Usage: "only this `CASE` (may be repeated)"},
		},
		Action: benchTracker,
	}
}

// benchTrackerLoadCommand is the generator of it.
func benchTrackerLoadCommand() *cli.Command {
	return &cli.Command{
		Name: "tracker-load", Hidden: true,
		Action: func(ctx context.Context, _ *cli.Command) error {
			in, out := pipes()
			return load.Serve(ctx, in, out)
		},
	}
}

// trackerTrials are the cases that are no rates.
var trackerTrials = []string{"memory", "slow", "kill"}

func benchTracker(ctx context.Context, cmd *cli.Command) error {
	if cmd.Args().Present() {
		return fmt.Errorf("bench tracker takes no arguments, got %q", cmd.Args().First())
	}
	if cmd.Int("runs") < 1 || cmd.Duration("duration") <= 0 {
		return usageErrorf("--runs, --duration: want more than 0")
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("bench tracker: %w", err)
	}
	dir, err := os.MkdirTemp("", "braid-bench-")
	if err != nil {
		return fmt.Errorf("bench tracker: %w", err)
	}
	defer os.RemoveAll(dir)
	b := load.Bench{Braid: exe, Generator: []string{exe, "bench", "tracker-load"}, TrackerCore: cmd.Int("tracker-core"), GeneratorCore: cmd.Int("load-core"), Dir: dir}
	if b.Opentracker, err = exec.LookPath("opentracker"); err != nil {
		stderr(cmd).printf("opentracker is not installed and left out\n")
	}
	var cases []load.Case
	known := slices.Clone(trackerTrials)
	only := cmd.StringSlice("case")
	wanted := func(name string) bool { return len(only) == 0 || slices.Contains(only, name) }
	for _, c := range load.Cases(b.Opentracker != "") {
		if known = append(known, c.Transport); wanted(c.Transport) {
			cases = append(cases, c)
		}
	}
	for _, c := range only {
		if !slices.Contains(known, c) {
			return usageErrorf("--case %q: want one of %s", c, strings.Join(slices.Compact(slices.Sorted(slices.Values(known))), ", "))
		}
	}
	if err := benchTrackerRates(ctx, cmd, b, cases); err != nil {
		return err
	}
	return benchTrackerTrials(ctx, cmd, b, wanted)
}

func benchTrackerRates(ctx context.Context, cmd *cli.Command, b load.Bench, cases []load.Case) error {
	if len(cases) == 0 {
		return nil
	}
	rows := map[load.Case][]load.Row{}
	encoder := json.NewEncoder(stdout(cmd))
	for range cmd.Int("runs") {
		for _, c := range cases {
			r, err := b.Measure(ctx, c, cmd.Duration("duration"))
			if err != nil {
				return err
			}
			if rows[c] = append(rows[c], r); cmd.Bool("json") {
				if err := encoder.Encode(r); err != nil {
					return err
				}
			}
		}
	}
	if cmd.Bool("json") {
		return nil
	}
	fmt.Fprintf(stdout(cmd), "tracker on core %d, generator on core %d, median of %d runs of %v\n\n", b.TrackerCore, b.GeneratorCore, cmd.Int("runs"), cmd.Duration("duration"))
	table := tabwriter.NewWriter(stdout(cmd), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "tracker\ttransport\tunder way\tannounces/s\tper CPU second\tp50 ms\tp99 ms\tlost\t")
	for _, c := range cases {
		of := func(f func(load.Row) float64) float64 {
			var v []float64
			for _, r := range rows[c] {
				v = append(v, f(r))
			}
			return load.Median(v)
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%.0f\t%.0f\t%.2f\t%.2f\t%.0f\t\n", c.Tracker, c.Transport, c.Window,
			of(func(r load.Row) float64 { return r.Rate }), of(func(r load.Row) float64 { return r.PerCPU }),
			of(func(r load.Row) float64 { return r.P50 }), of(func(r load.Row) float64 { return r.P99 }), of(func(r load.Row) float64 { return float64(r.Lost) }))
	}
	return table.Flush()
}

func benchTrackerTrials(ctx context.Context, cmd *cli.Command, b load.Bench, wanted func(string) bool) error {
	out := stdout(cmd)
	tell := func(name string, v any, text string) error {
		if !cmd.Bool("json") {
			_, err := fmt.Fprintln(out, "\n"+text)
			return err
		}
		return json.NewEncoder(out).Encode(map[string]any{"trial": name, "result": v})
	}
	if wanted("memory") {
		r, err := b.Memory(ctx, 100_000)
		if err != nil {
			return err
		}
		if err := tell("memory", r, fmt.Sprintf("memory: %.0f bytes for each of %d peers in %d swarms", r.BytesPerPeer, r.Peers, r.Swarms)); err != nil {
			return err
		}
	}
	if wanted("slow") {
		r, err := b.Slow(ctx, 5000, cmd.Int("runs"), cmd.Duration("duration"))
		if err != nil {
			return err
		}
		text := fmt.Sprintf("slow: p99 of honest announces %.2f ms (p50 %.2f) beside %d half-open requests, %.2f ms (p50 %.2f) without: ratio %.2f",
			r.BesideP99, r.BesideP50, r.Slow, r.AloneP99, r.AloneP50, r.Ratio)
		if err := tell("slow", r, text); err != nil {
			return err
		}
	}
	if wanted("kill") {
		r, err := b.Kill(ctx, 10_000, 1000, 5*time.Second, time.Second, time.Second)
		if err != nil {
			return err
		}
		return tell("kill", r, fmt.Sprintf("kill: %d of %d peers lost that were acknowledged more than %.0f s before, %d of %d later ones; ready again after %.2f s",
			r.Lost, r.Acknowledged, r.Margin, r.LaterLost, r.Later, r.Ready))
	}
	return nil
}
