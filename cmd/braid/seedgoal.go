package main

import (
	"fmt"

	"github.com/urfave/cli/v3"

	"braid/node"
)

// seedGoalFlags say when to stop serving. limit is the default, in words.
func seedGoalFlags(limit string) []cli.Flag {
	return []cli.Flag{
		floatFlag("ratio", "stop serving a torrent when `N` times its size has been sent "+
			"(default: "+limit+")"),
		periodFlag("seed-time", 0, "stop serving a torrent `TIME` after it is complete, such as 30m "+
			"or 24h (default: "+limit+")"),
	}
}

func (f *flags) seedGoal() node.Goal {
	g := node.Goal{Ratio: f.Float("ratio"), Time: f.Duration("seed-time")}
	f.want(!f.IsSet("ratio") || g.Ratio > 0,
		"--ratio %v: want a number above 0, such as 1.5", g.Ratio)
	return g
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
