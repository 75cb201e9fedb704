package commands

import (
	"context"

	"github.com/urfave/cli/v3"

	"braid/commands/program"
)

// movedCommands tell users where the commands of the laboratory have gone, which were once part of
// braid.
func movedCommands() []*cli.Command {
	var all []*cli.Command
	for name, now := range map[string]string{
		"testbed": "braid-testbed", "bench": "braid-testbed bench", "demo": "braid-testbed demo",
		"router": "braid-testbed up --router fast", "soak": "braid-testbed soak",
	} {
		all = append(all, &cli.Command{
			Name: name, Hidden: true, SkipFlagParsing: true, ArgsUsage: "[ARG...]",
			Action: func(context.Context, *cli.Command) error {
				return program.UsageErrorf("braid %s is now %s, a program of its own; the package "+
					"braid-testbed has it, and so has scripts/install --testbed", name, now)
			},
		})
	}
	return all
}
