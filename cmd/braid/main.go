// Command braid is a multipath BitTorrent client for SCION.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		// The second one ends braid at once, whatever hangs. Go's own handler would not do: a shell without job control
		// starts background jobs with SIGINT ignored, and signal.Stop goes back to that.
		<-signals
		os.Exit(exitInterrupted)
	}()
	// A reader that has gone is an error like any other, and no signal that ends braid in the middle of things.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	out := &printer{w: os.Stdout, lost: cancel}
	people := &printer{w: os.Stderr, private: true}
	people.obey(os.Getenv)
	people.followTerminal()
	log.SetOutput(people) // of the libraries
	cli.HelpPrinter = printHelp
	err, code := outcome(rootCommand(out, people).Run(ctx, os.Args), out.lostOutput())
	if err != nil {
		people.say("braid", err.Error())
	}
	os.Exit(code)
}

// rootCommand is all of braid, which prints results to out, and everything else to people.
func rootCommand(out, people *printer) *cli.Command {
	root := &cli.Command{
		Name:        "braid",
		Usage:       "multipath BitTorrent for SCION",
		Description: exitCodes,
		// A SCION address has a comma in it.
		DisableSliceFlagSeparator: true,
		Commands: []*cli.Command{
			downloadCommand(), seedCommand(), createCommand(), infoCommand(), verifyCommand(), exportCommand(),
			pathsCommand(), trackerCommand(), testbedCommand(), benchCommand(),
		},
		Writer:         out,
		ErrWriter:      people,
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // below
	}
	setDefaults(root)
	return root
}
