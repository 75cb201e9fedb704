package commands

import (
	"context"
	"net/url"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/node/bootstrap"
	"braid/scionnet"
	"braid/units/lists"
)

func bootstrapCommand() *cli.Command {
	return &cli.Command{
		Name:  "bootstrap",
		Usage: "get the SCION configuration of this network, for a host without one",
		Description: "Finds a discovery server (DHCP, DNS SRV, DNS-SD and NAPTR records in the " +
			"search domains, multicast DNS), or asks the one in --bootstrap, for the topology of " +
			"the AS and for TRCs, the roots of trust. Nothing authenticates the first TRC of an " +
			"ISD: compare its fingerprint with one that you got elsewhere. Later TRCs must be " +
			"signed by those before them. The result is kept for all commands of braid. Other " +
			"commands that need SCION do the same, and refresh the result. An administrator's " +
			"configuration always wins.\n\n" + program.ExitCodes,
		Flags: []cli.Flag{
			bootstrapFlag("ask the discovery server at `URL`, such as " +
				"http://192.0.2.1:8041; auto asks the network for one"),
			flags.Bool("dry-run", "show what would be kept, and write nothing"),
			flags.Bool("json", "print the result as a JSON object"),
			flags.Verbose(),
		},
		Action: runBootstrap,
	}
}

// bootstrapFlag wants auto, off or a discovery server.
func bootstrapFlag(usage string) cli.Flag {
	parse := func(s string) (*url.URL, error) {
		if s == "auto" || s == "off" {
			return nil, nil
		}
		return bootstrap.ParseServer(s)
	}
	return flags.Parsed("bootstrap", "auto", usage, parse)
}

// bootstrapped is the result of braid bootstrap --json.
type bootstrapped struct {
	Server string       `json:"server"`
	From   string       `json:"from"` // how the server was found
	IA     string       `json:"isd_as"`
	Dir    string       `json:"dir"`
	Kept   bool         `json:"kept"`
	Used   bool         `json:"used"` // false: an administrator's configuration wins
	TRCs   []trustedTRC `json:"trcs"`
}

type trustedTRC struct {
	ID          string          `json:"id"`
	Fingerprint string          `json:"fingerprint"` // SHA-256 of the file in DER
	Trust       bootstrap.Trust `json:"trust"`
	NotAfter    time.Time       `json:"not_after"`
}

func runBootstrap(ctx context.Context, cmd *cli.Command) error {
	server := cmd.String("bootstrap")
	if server == "" || server == "off" {
		return program.UsageErrorf("--bootstrap %q: want the URL of a discovery server", server)
	}
	dir, err := envOf(cmd).bootstrapDir()
	if err != nil {
		return err
	}
	r, hint, err := bootstrap.AskAny(ctx, server, dir, logger(cmd))
	if err != nil {
		return err
	}
	c, err := environment(cmd)
	if err != nil {
		return err
	}
	out := bootstrapped{
		Server: r.Server,
		From:   hint.From,
		IA:     r.IA.String(),
		Dir:    dir,
		Used:   !isSetUp(c),
		TRCs: lists.Map(r.Judged, func(j bootstrap.Judged) trustedTRC {
			return trustedTRC{
				ID:          j.TRC.TRC.ID.String(),
				Fingerprint: bootstrap.Fingerprint(j.TRC),
				Trust:       j.Trust,
				NotAfter:    j.TRC.TRC.Validity.NotAfter,
			}
		}),
	}
	if !cmd.Bool("dry-run") {
		if err := r.Keep(dir, time.Now()); err != nil {
			return err
		}
		out.Kept = true
	}
	if cmd.Bool("json") {
		return terminal.PrintObjects(terminal.Stdout(cmd), out)
	}
	w := terminal.Stdout(cmd)
	w.Printf("AS %s, says the discovery server %s (%s)\n", out.IA, out.Server, out.From)
	for _, t := range out.TRCs {
		w.Printf("TRC %s, %s, valid until %s, SHA-256 %s\n",
			t.ID, t.Trust, t.NotAfter.Format(time.DateOnly), t.Fingerprint)
	}
	switch {
	case !out.Kept:
		w.Printf("nothing is written (--dry-run)\n")
	case !out.Used:
		w.Printf("kept in %s, but not used: "+
			"this host has a SCION configuration of its administrator\n", dir)
	default:
		w.Printf("kept in %s\n", dir)
	}
	return nil
}

// bootstrapDir is where the configuration is kept.
func (e *Env) bootstrapDir() (string, error) {
	state, err := e.stateDir("")
	return filepath.Join(state, "scion"), err
}

// isSetUp tells whether somebody has set up SCION on this host: a daemon is named, or there is a
// topology.
func isSetUp(c scionnet.Config) bool { return c.Daemon != "" || bootstrap.Has(c.ConfigDir) }
