package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/urfave/cli/v3"

	"braid/scionnet"
)

// scionFlags say where the SCION control plane of the local AS is found, as the scion tool's flags do.
func scionFlags() []cli.Flag {
	const category = "SCION"
	return []cli.Flag{
		&cli.StringFlag{Name: "config-dir", Category: category, Usage: "`DIR` with topology.json and certs/ (default /etc/scion on Linux); --sciond and SCION_DAEMON win over it"},
		&cli.StringFlag{Name: "sciond", Category: category, Usage: "use the SCION daemon at `HOST:PORT`, or \"default\" for 127.0.0.1:30255"},
		&cli.StringFlag{Name: "local", Aliases: []string{"l"}, Category: category, Usage: "local `IP` address to send from (also SCION_LOCAL_ADDR)"},
		&cli.StringFlag{Name: "isd-as", Category: category, Usage: "the local `ISD-AS`, where the environment file names several"},
	}
}

// scionConfig is the configuration that the flags, the environment and /etc/scion give together.
func scionConfig(cmd *cli.Command, log *slog.Logger) (scionnet.Config, error) {
	c, err := scionnet.Environment(scionnet.Flags{
		ConfigDir: cmd.String("config-dir"),
		Daemon:    cmd.String("sciond"),
		Local:     cmd.String("local"),
		IA:        cmd.String("isd-as"),
	}, os.LookupEnv, os.ReadFile)
	c.Logger = log
	return c, err
}

// openHost opens the SCION host that the flags describe.
func openHost(ctx context.Context, cmd *cli.Command, log *slog.Logger) (*scionnet.Host, error) {
	c, err := scionConfig(cmd, log)
	if err != nil {
		return nil, err
	}
	return scionnet.Open(ctx, c)
}
