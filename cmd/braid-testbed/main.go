// Command braid-testbed is the laboratory of braid: real SCION networks on one machine, experiments
// with braid on them, and benchmarks. It starts the program braid for each peer.
package main

import (
	"log"
	"os"

	"github.com/urfave/cli/v3"

	"braid/cmd/braid-testbed/nohup"
	"braid/commands/program"
)

//go:generate sh -c "go run . manual > ../../docs/manual-testbed.md"

func main() {
	env := program.Process()
	// A library has caught SIGHUP by now: see package nohup.
	env.Nohup, env.Logs = nohup.Ignored(), log.SetOutput
	os.Exit(env.Run(program.Signals(os.Exit), tree(), os.Args[1:], nil))
}

// tree returns the command tree of braid-testbed.
func tree() *cli.Command {
	return &cli.Command{
		Name:  "braid-testbed",
		Usage: "real SCION networks on this machine, and experiments with braid on them",
		Commands: []*cli.Command{
			upCommand(), downCommand(), statusCommand(), linkCommand(), demoCommand(),
			runCommand(), reportCommand(), compareCommand(), exportCommand(), replayCommand(),
			showCommand(), benchCommand(), soakCommand(), routerCommand(), hostCommand(),
			superviseCommand(),
		},
	}
}
