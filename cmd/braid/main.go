// Command braid is a multipath BitTorrent client for SCION.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"braid/cmd/braid/nohup"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// Go's own handler would not do for the second one: a shell without job control starts
	// background jobs with SIGINT ignored, and signal.Stop goes back to that.
	go obeySignals(signals, cancel, func() { os.Exit(exitInterrupted) })
	// A reader that has gone is an error like any other, and no signal that ends braid in the
	// middle of things.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	out := &printer{w: os.Stdout, lost: cancel}
	people := &printer{w: os.Stderr, private: true}
	people.obey(os.Getenv)
	people.followTerminal()
	log.SetOutput(people) // of the libraries
	cli.HelpPrinter = printHelp
	code, err := outcome(rootCommand(out, people).Run(ctx, os.Args), out.lostOutput())
	if err != nil {
		people.say("braid", err.Error())
	}
	os.Exit(code)
}

// sameInterrupt is the time within which several signals are one Ctrl-C: timeout(1) signals a
// process and then its group. Nobody presses the key twice as fast because braid hangs.
const sameInterrupt = 300 * time.Millisecond

// obeySignals ends braid cleanly at the first signal, and at once at the second, whatever hangs.
func obeySignals(signals <-chan os.Signal, stop, exit func()) {
	<-signals
	stop()
	for first := time.Now(); time.Since(first) < sameInterrupt; {
		<-signals
	}
	exit()
}

// endOnHangup has SIGHUP end the command as Ctrl-C does: the terminal or the SSH session has gone.
// If braid was started with SIGHUP ignored, as nohup does, it stays ignored.
func endOnHangup(action cli.ActionFunc) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		if !nohup.Ignored() {
			var stop context.CancelFunc
			ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
			defer stop()
		}
		return action(ctx, cmd)
	}
}

// rootCommand is all of braid, which prints results to out, and everything else to people.
func rootCommand(out, people *printer) *cli.Command {
	root := &cli.Command{
		Name:        "braid",
		Usage:       "multipath BitTorrent for SCION",
		Description: exitCodes,
		Flags: []cli.Flag{&cli.BoolFlag{
			Name:  "version",
			Usage: "print the release, the commit and the Go version",
			Local: true,
		}},
		// A SCION address has a comma in it.
		DisableSliceFlagSeparator:       true,
		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: configureCompletion,
		Before:                          sayMissing,
		Commands: slices.Concat([]*cli.Command{
			downloadCommand(), seedCommand(), sendCommand(), getCommand(), mirrorCommand(), serveCommand(), createCommand(), infoCommand(), verifyCommand(), exportCommand(),
			daemonCommand(), addCommand(), listCommand(), showCommand(), pauseCommand(), resumeCommand(), removeCommand(),
			setCommand(), moveCommand(), renameCommand(), watchCommand(), passwordCommand(),
			bootstrapCommand(), pathsCommand(), doctorCommand(), trackerCommand(), gatewayCommand(), dhtCommand(),
		}, labCommands(), []*cli.Command{manualCommand()}),
		Writer:         out,
		ErrWriter:      people,
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // below
	}
	setDefaults(root)
	root.Action = func(ctx context.Context, c *cli.Command) error {
		if c.Bool("version") {
			stdout(c).printf("%s\n", version())
			return nil
		}
		return groupAction(ctx, c)
	}
	return root
}
