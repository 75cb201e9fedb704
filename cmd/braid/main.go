// Command braid is a multipath BitTorrent client for SCION.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends braid at once
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
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // below
	}
	setDefaults(root)
	err := root.Run(ctx, os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "braid:", err)
	}
	stop()
	os.Exit(exitCode(err))
}
