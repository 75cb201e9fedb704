package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"braid/testbed/knowledgebench"
)

func benchKnowledgeCommand() *cli.Command {
	return &cli.Command{
		Name:  "knowledge",
		Usage: "what it is worth that a tracker names near peers and good paths",
		Description: `Plays downloads between 16 regions with measured delays and drawn link rates, in simulated time, with the
default path selection and the tracker's own path knowledge. "peers": leechers of all regions come one after the other
and get four seeds, at random, the nearest, or half and half. "paths": several leechers of one region have
one seed with 15 paths, of which two may be used at a time; "lies" is a tracker that names the worst paths. Times
in seconds, median and 90th percentile.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Aliases: []string{"j"}, Usage: "write one JSON object for each case"},
			&cli.IntFlag{Name: "worlds", Value: 8, Usage: "`NUMBER` of networks with rates drawn anew"},
			&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "draw everything from `NUMBER`"},
		},
		Action: benchKnowledge,
	}
}

func benchKnowledge(ctx context.Context, cmd *cli.Command) error {
	if cmd.Args().Present() {
		return usageErrorf("bench knowledge takes no arguments, got %q", cmd.Args().First())
	}
	cfg := knowledgebench.Config{Worlds: cmd.Int("worlds"), Seed: cmd.Uint64("seed")}
	if cfg.Worlds < 1 {
		return usageErrorf("--worlds: want at least 1")
	}
	rows := newBenchRows(cmd, "experiment\tpeers\thints\tleecher\truns\tfirst piece\t90%\tbest paths\t90%\tdone\t90%\tfirst 30 s, Mbit/s\t")
	return rows.end(knowledgebench.Run(ctx, cfg, func(r knowledgebench.Row) {
		best := "-\t-"
		if r.BestSet != (knowledgebench.Spread{}) {
			best = fmt.Sprintf("%.2f\t%.2f", r.BestSet.P50, r.BestSet.P90)
		}
		rows.add(r, "%s\t%s\t%s\t%s\t%d\t%.2f\t%.2f\t%s\t%.1f\t%.1f\t%.2f\t", r.Experiment, r.Order, r.Hints, r.Nth, r.Runs,
			r.First.P50, r.First.P90, best, r.Done.P50, r.Done.P90, r.Early.P50)
	}))
}
