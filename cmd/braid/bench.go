package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"braid/testbed/linkemu"
)

func benchCommand() *cli.Command {
	return &cli.Command{
		Name:  "bench",
		Usage: "measure braid's parts on this machine",
		Commands: []*cli.Command{benchTransportCommand(), benchTransportEndCommand(), benchTrackerCommand(), benchTrackerLoadCommand(), benchKnowledgeCommand(), {
			Name:  "link",
			Usage: "how exactly the link emulator keeps rate, delay and loss, and what it costs",
			Description: `Sends real packets over emulated links on loopback, one case after the other. "plain" loads send and
receive without segmentation offload, as stock border routers do. Run it on a machine that does
nothing else: "missed" counts packets that the machine lost before the link saw them, and "late" those
that left more than 2 ms after their time.`,
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "json", Aliases: []string{"j"}, Usage: "write one JSON object for each case"},
				&durationFlag{Name: "duration", Value: 2 * time.Second, Usage: "of each case"},
			},
			Action: benchLink,
		}, benchStorageCommand(), benchStorageLeechCommand()},
	}
}

// benchProgress tells on standard error what a benchmark is at.
func benchProgress(cmd *cli.Command) func(string) {
	if cmd.Bool("quiet") {
		return func(string) {}
	}
	return func(s string) { stderr(cmd).printf("%s\n", s) }
}

func benchLink(ctx context.Context, cmd *cli.Command) error {
	if cmd.Args().Present() {
		return usageErrorf("bench link takes no arguments, got %q", cmd.Args().First())
	}
	rows := newBenchRows(cmd, "link\tload\tMbit/s\trate error %\tlate p50 ms\tp90\tp99\tloss error % (chance)\tCPU s/GB\tmissed\tlate\t")
	cases := linkemu.Cases(cmd.Duration("duration"))
	stderr(cmd).printf("%d cases of %s each\n", len(cases), cmd.Duration("duration"))
	for _, c := range cases {
		a, err := linkemu.Measure(ctx, c.Link, c.Load)
		if err != nil {
			return rows.end(err)
		}
		rows.add(a, "%s", accuracyRow(a))
	}
	return rows.end(nil)
}

func accuracyRow(a linkemu.Accuracy) string {
	rate, loss := "-", "-"
	if a.RateError != nil {
		rate = fmt.Sprintf("%+.3f", *a.RateError)
	}
	late := "-\t-\t-"
	if d := a.DelayError; d != nil {
		late = fmt.Sprintf("%.2f\t%.2f\t%.2f", d.P50, d.P90, d.P99)
	}
	if a.LossError != nil {
		loss = fmt.Sprintf("%+.1f (±%.1f)", *a.LossError, *a.LossSigma)
	}
	return fmt.Sprintf("%s\t%s\t%.1f\t%s\t%s\t%s\t%.2f\t%d\t%d\t", a.Link, a.Load, a.MbitS, rate, late, loss,
		a.CPUSecondsPerGB, a.Missed, a.Late)
}
