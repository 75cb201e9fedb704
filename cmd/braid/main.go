// Command braid is a multipath BitTorrent client for SCION.
package main

import (
	"log"
	"os"

	"braid/cmd/braid/nohup"
	"braid/commands"
	"braid/commands/program"
)

//go:generate sh -c "go run . manual > ../../docs/manual.md"

func main() {
	env := program.Process()
	env.Nohup = nohup.Ignored()
	env.Logs = log.SetOutput
	ctx := program.Signals(os.Exit)
	os.Exit(commands.Run(ctx, commands.Env{Env: env}, os.Args[1:], labCommands()...))
}
