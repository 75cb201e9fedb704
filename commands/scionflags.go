package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/node/bootstrap"
	"braid/pathsel"
	"braid/scionnet"
)

// scionFlags say where the SCION configuration is. They have the names of the scion tool's flags.
func scionFlags() []cli.Flag {
	return flags.InCategory("SCION",
		flags.File("config-dir", "", "`DIR` with topology.json and certs/ (default /etc/scion on "+
			"Linux); ignored with --sciond or SCION_DAEMON"),
		flags.String("sciond", "", "use the SCION daemon at `HOST:PORT`, or \"default\" for "+
			"127.0.0.1:30255"),
		flags.Parsed("local", "", "local `IP` address to send from (also SCION_LOCAL_ADDR)",
			scionnet.ParseLocal, "l"),
		flags.Parsed("nat", "auto", "whether to ask the routers of the AS for the address that a "+
			"NAT has given this host: `MODE` is auto (ask once; if there is a NAT, repeatedly), "+
			"on (always ask repeatedly), or off", scionnet.ParseNAT),
		flags.Bool("epic", "send with EPIC along paths that offer it (see braid paths --json): "+
			"the routers of their last two ASes then check each packet. The clock must be right "+
			"to a second"),
		bootstrapFlag("where a host without SCION configuration gets one: "+
			"`SERVER` is the URL of a discovery server, auto (ask the network for one, as braid "+
			"bootstrap does), or off"),
		flags.Parsed("isd-as", "", "the local `ISD-AS`, if the environment file names several",
			pathsel.ParseIA),
	)
}

// forceFlag is for the commands that listen on SCION.
func forceFlag() cli.Flag {
	return flags.InCategory("SCION", flags.Bool("force", "allow SCION ports to which the AS does "+
		"not deliver packets: for hosts with a shim dispatcher"))[0]
}

// environment reads the SCION configuration from the flags, the environment and /etc/scion.
func environment(cmd *cli.Command) (scionnet.Config, error) {
	c, err := scionnet.Environment(scionnet.Flags{
		ConfigDir: cmd.String("config-dir"),
		Daemon:    cmd.String("sciond"),
		Local:     cmd.String("local"),
		IA:        cmd.String("isd-as"),
	}, envOf(cmd).Getenv, os.ReadFile)
	if err != nil {
		return c, fmt.Errorf("%w; see --config-dir, --sciond, --local and --isd-as", err)
	}
	return c, nil
}

// scionConfig adds braid's own flags to the environment. If nobody has set up SCION on this host,
// the configuration is the one that braid has got by bootstrapping; update, if not nil, gets or
// refreshes that one first.
func scionConfig(cmd *cli.Command, update func(dir string)) (scionnet.Config, error) {
	c, err := environment(cmd)
	if err != nil {
		return c, err
	}
	if c.NAT, err = scionnet.ParseNAT(cmd.String("nat")); err != nil {
		return c, err
	}
	c.EPIC = cmd.Bool("epic")
	server := cmd.String("bootstrap")
	if server == "" || server == "off" || cmd.IsSet("config-dir") || isSetUp(c) {
		return c, nil
	}
	if dir, err := envOf(cmd).bootstrapDir(); err == nil {
		if update != nil {
			update(dir)
		}
		if bootstrap.Has(dir) {
			c.ConfigDir = dir
		}
	}
	return c, nil
}

// hasSCION tells whether this host seems to be on SCION: a daemon is named, or there is a topology.
func hasSCION(cmd *cli.Command) bool {
	c, err := scionConfig(cmd, nil)
	return err == nil && isSetUp(c)
}

// openHost opens the SCION host that the flags describe. It must have the addresses to listen on.
// Without --local it sends from the first of them.
func openHost(
	ctx context.Context, cmd *cli.Command, log *slog.Logger, listen ...scionnet.Addr,
) (*scionnet.Host, error) {
	c, err := scionConfig(cmd, func(dir string) {
		// If it fails, opening the host fails, unless an older configuration is enough.
		log := cmp.Or(log, logger(cmd))
		bootstrap.Refresh(ctx, cmd.String("bootstrap"), dir, cmd.IsSet("bootstrap"), log)
	})
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return nil, err
	}
	c.Logger, c.AnyPort = log, cmd.Bool("force")
	if len(listen) > 0 && !cmd.IsSet("local") {
		c.LocalIP = listen[0].Host
	}
	h, err := envOf(cmd).Network.openSCION(ctx, c)
	if errors.Is(err, scionnet.ErrOtherAS) {
		return nil, program.UsageErrorf("--isd-as: %w", err)
	}
	if err != nil {
		return nil,
			fmt.Errorf("%w; see --config-dir, --sciond and --local; braid doctor finds out more",
				err)
	}
	for _, a := range listen {
		if err := fits(h, a); err != nil {
			h.Close()
			return nil, err
		}
	}
	return h, nil
}

// fits tells whether an address to listen on is one of the host's.
func fits(h *scionnet.Host, a scionnet.Addr) error {
	if a.IA == h.IA() && a.Host == h.LocalIP() {
		return nil
	}
	return program.UsageErrorf("cannot listen on %s: this host is in AS %s, with the address %s",
		a, h.IA(), h.LocalIP())
}

// listenError says what to do if an address to listen on does not fit the host or its AS.
func listenError(err error) error {
	if port := (*scionnet.PortError)(nil); errors.As(err, &port) {
		return program.UsageErrorf("%w; choose another port or, "+
			"if a shim dispatcher runs on this host, give --force", err)
	}
	return err
}
