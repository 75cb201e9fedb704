package main

import (
	"fmt"
	"math"

	"github.com/urfave/cli/v3"

	"braid/node"
)

func seedGoalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.FloatFlag{Name: "ratio", HideDefault: true, Usage: "stop serving a torrent when this run has sent `N` times its size (default: no limit)"},
		&durationFlag{Name: "seed-time", Usage: "stop serving a torrent `TIME` after it is complete, such as 30m or 24h (default: no limit)"},
	}
}

func parseSeedGoal(cmd *cli.Command) (node.Goal, error) {
	g := node.Goal{Ratio: cmd.Float("ratio"), Time: cmd.Duration("seed-time")}
	if cmd.IsSet("ratio") && (!(g.Ratio > 0) || math.IsInf(g.Ratio, 0)) {
		return g, usageErrorf("--ratio %v: want a number above 0, such as 1.5", g.Ratio)
	}
	if cmd.IsSet("seed-time") && g.Time <= 0 {
		return g, usageErrorf("--seed-time %v: want more than 0", g.Time)
	}
	return g, nil
}

// orUntil continues a sentence about serving until interrupted.
func orUntil(g node.Goal) string {
	var out string
	if g.Ratio > 0 {
		out += fmt.Sprintf(", or %v times the size is sent", g.Ratio)
	}
	if g.Time > 0 {
		out += fmt.Sprintf(", or for %v", g.Time)
	}
	return out
}
