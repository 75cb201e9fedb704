//go:build small

package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"
)

// labCommands tell users how to get the commands that this build leaves out: scripts/build makes a
// program with all commands.
func labCommands() []*cli.Command {
	var all []*cli.Command
	for _, name := range []string{"testbed", "bench"} {
		all = append(all, &cli.Command{
			Name: name, Hidden: true, SkipFlagParsing: true, ArgsUsage: "[ARG...]",
			Action: func(context.Context, *cli.Command) error {
				return fmt.Errorf("braid %s is not part of this installation: "+
					"get braid's source code, run scripts/build there, and use its bin/braid", name)
			},
		})
	}
	return all
}
