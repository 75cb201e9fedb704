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
	defer stop()
	root := &cli.Command{
		Name:     "braid",
		Usage:    "multipath BitTorrent for SCION",
		Commands: []*cli.Command{pathsCommand(), testbedCommand(), benchCommand()},
	}
	if err := root.Run(ctx, os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "braid:", err)
		os.Exit(1)
	}
}
