package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"

	"braid/cmd/braid/nohup"
)

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
