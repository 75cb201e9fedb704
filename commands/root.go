// Package commands has all commands of braid. Run runs one of them; several may run in one process
// at the same time.
package commands

import (
	"context"

	"github.com/urfave/cli/v3"
)

// Run runs the command that args name, without the program's name, and returns its exit code.
func Run(ctx context.Context, env Env, args []string) int {
	return env.Env.Run(ctx, tree(&env), args, advise)
}

func advise(err error) error { return doctorAdvice(storageAdvice(err)) }

// tree returns braid's command tree.
func tree(env *Env) *cli.Command {
	return &cli.Command{
		Name:   "braid",
		Usage:  "multipath BitTorrent for SCION",
		Before: sayMissing,
		Commands: append([]*cli.Command{
			downloadCommand(), seedCommand(), sendCommand(), getCommand(), mirrorCommand(),
			serveCommand(), createCommand(), infoCommand(), verifyCommand(), exportCommand(),
			daemonCommand(), addCommand(), listCommand(), showCommand(), pauseCommand(),
			resumeCommand(), removeCommand(), setCommand(), moveCommand(), renameCommand(),
			watchCommand(), passwordCommand(), bootstrapCommand(), pathsCommand(), doctorCommand(),
			trackerCommand(), gatewayCommand(), dhtCommand(),
		}, movedCommands()...),
		Metadata: map[string]any{envKey: env},
	}
}
