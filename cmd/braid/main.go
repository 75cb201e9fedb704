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
	// After signal.Stop the default action would not end braid at the second signal: a shell
	// without job control starts background jobs with SIGINT ignored, and signal.Stop restores
	// that.
	go obeySignals(signals, cancel, func() { os.Exit(exitInterrupted) })
	// If the reader of a pipe has gone, writes fail, but no signal ends braid in the middle of its
	// work.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	out := &printer{w: os.Stdout, lost: cancel}
	people := &printer{w: os.Stderr, private: true}
	out.obey(os.Getenv)
	people.obey(os.Getenv)
	followTerminal(out, people)
	log.SetOutput(people) // for the logs of libraries
	cli.HelpPrinter, cli.ShowCommandHelp = printHelp, showHelp
	code, err := outcome(rootCommand(out, people).Run(ctx, os.Args), out.lostOutput())
	if err != nil {
		people.say("braid", err.Error())
	}
	os.Exit(code)
}

// sameInterrupt is the time in which several signals count as one: timeout(1) signals a process and
// then its group. A user who presses Ctrl-C again because braid hangs is slower.
const sameInterrupt = 300 * time.Millisecond

// obeySignals ends braid cleanly at the first signal, and at once at the second.
func obeySignals(signals <-chan os.Signal, stop, exit func()) {
	<-signals
	stop()
	for first := time.Now(); time.Since(first) < sameInterrupt; {
		<-signals
	}
	exit()
}

// endOnHangup makes SIGHUP end the command as Ctrl-C does. SIGHUP comes when the terminal or the
// SSH session has gone. If braid was started with SIGHUP ignored, as nohup does, it stays ignored.
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

// rootCommand returns braid's command tree. It prints results to out, and everything else to
// people.
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
		// SCION addresses contain a comma.
		DisableSliceFlagSeparator:       true,
		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: configureCompletion,
		Before:                          sayMissing,
		Commands: slices.Concat([]*cli.Command{
			downloadCommand(), seedCommand(), sendCommand(), getCommand(), mirrorCommand(),
			serveCommand(), createCommand(), infoCommand(), verifyCommand(), exportCommand(),
			daemonCommand(), addCommand(), listCommand(), showCommand(), pauseCommand(),
			resumeCommand(), removeCommand(), setCommand(), moveCommand(), renameCommand(),
			watchCommand(), passwordCommand(), bootstrapCommand(), pathsCommand(), doctorCommand(),
			trackerCommand(), gatewayCommand(), dhtCommand(),
		}, labCommands(), []*cli.Command{manualCommand()}),
		Writer:         out,
		ErrWriter:      people,
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // main reports errors
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
