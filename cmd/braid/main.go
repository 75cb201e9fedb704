// Command braid is a multipath BitTorrent client for SCION.
package main

import (
	"log"
	"os"
	_ "time/tzdata" // rate schedules need time zones, which a container image lacks

	"braid/commands"
	"braid/commands/program"
)

//go:generate sh -c "go run . manual > ../../docs/manual.md"

func main() {
	env := commands.Env{Env: program.Process()}
	env.Logs = log.SetOutput
	os.Exit(commands.Run(program.Signals(os.Exit), env, os.Args[1:]))
}
