// Package commands has all commands of braid. Run runs one of them; several may run in one process
// at the same time.
package commands

import (
	"context"

	"github.com/urfave/cli/v3"
)

// Run runs the command that args name, without the program's name, and returns its exit code. more
// are commands beside those of this package.
func Run(ctx context.Context, env Env, args []string, more ...*cli.Command) int {
	root := tree(&env)
	root.Commands = append(root.Commands, more...)
	return env.Env.Run(ctx, root, args, advise)
}

func advise(err error) error { return doctorAdvice(storageAdvice(err)) }

// tree returns braid's command tree.
func tree(env *Env) *cli.Command {
	return &cli.Command{
		Name:   "braid",
		Usage:  "multipath BitTorrent for SCION",
		Before: sayMissing,
		Commands: []*cli.Command{
			downloadCommand(), seedCommand(), sendCommand(), getCommand(), mirrorCommand(),
			serveCommand(), createCommand(), infoCommand(), verifyCommand(), exportCommand(),
			daemonCommand(), addCommand(), listCommand(), showCommand(), pauseCommand(),
			resumeCommand(), removeCommand(), setCommand(), moveCommand(), renameCommand(),
			watchCommand(), passwordCommand(), bootstrapCommand(), pathsCommand(), doctorCommand(),
			trackerCommand(), gatewayCommand(), dhtCommand(),
		},
		Metadata: map[string]any{envKey: env},
	}
}
