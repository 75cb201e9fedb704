package commands

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/node/doctor"
	"braid/scionnet"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:      "doctor",
		Usage:     "find out why SCION does not work here, and what to do",
		ArgsUsage: "[ISD-AS,[HOST]:PORT]",
		ArgValidator: flags.Arguments(0, 1,
			"name one target, such as: braid doctor '1-ff00:0:111,[127.0.0.1]:31000'"),
		Description: `Checks this host, its AS and, if one is named, the way to a target: an ISD-AS,
the port of a braid (1-ff00:0:111,[127.0.0.1]:31000), or the name of a host. Each line names a check
and its result; if something is wrong, also why that matters and what to do. The checks send some
packets to the AS's routers, to core ASes and to the target. The exit code is 1 if something is
wrong.`,
		Flags: append([]cli.Flag{
			flags.Bool("json", "print a JSON object with all findings"),
			flags.String("listen", "", "check that braid can listen on `ADDR`, such as "+
				"1-ff00:0:110,[192.0.2.1]:31000"),
			flags.String("tracker", "", "check that the tracker with the announce `URL` answers"),
			flags.File("output", ".", "check the space in `DIR`, into which you download", "o"),
		}, scionFlags()...),
		Action: runDoctor,
	}
}

func isFile(name string) bool { _, err := os.Stat(name); return err == nil }

func runDoctor(ctx context.Context, cmd *cli.Command) error {
	c, err := scionConfig(cmd, nil)
	if err != nil {
		return err
	}
	o := doctor.Options{
		SCION:   c,
		Target:  cmd.Args().First(),
		Tracker: cmd.String("tracker"),
		Dir:     cmd.String("output"),
	}
	if file := envOf(cmd).Path(o.Target); isFile(file) { // and not an address
		o.Target = file
	}
	if !cmd.IsSet("config-dir") {
		o.OwnDir, _ = envOf(cmd).bootstrapDir() // without it, there is one place less to look
	}
	if s := cmd.String("listen"); s != "" {
		a, err := scionnet.ParseAddr(s)
		if err != nil {
			return program.UsageErrorf("--listen: %w", err)
		}
		o.Port, o.SCION.IA = a.Port, a.IA
		if !cmd.IsSet("local") {
			o.SCION.LocalIP = a.Host
		}
	}
	facts, err := doctor.Gather(ctx, o)
	if err != nil {
		return program.UsageErrorf("%w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	findings := doctor.Examine(facts)
	if !cmd.Bool("json") {
		printFindings(terminal.Stdout(cmd), findings)
	} else if err := terminal.PrintJSON(terminal.Stdout(cmd), struct {
		OK       bool             `json:"ok"`
		Findings []doctor.Finding `json:"findings"`
	}{!doctor.Failed(findings), findings}); err != nil {
		return err
	}
	if doctor.Failed(findings) {
		return errors.New("something is wrong: see the checks that have failed")
	}
	return nil
}

func printFindings(out *terminal.Printer, all []doctor.Finding) {
	for _, f := range all {
		out.Printf("%-8s %s: %s\n", f.Status, f.Check, f.Found)
		if f.Status != doctor.OK {
			out.Printf("%9sWhy it matters: %s.\n%9sWhat to do: %s.\n", "", f.Why, "", f.Do)
		}
	}
}

// askDoctor returns the end of a sentence about a cause: the command that finds out more, or
// nothing.
func askDoctor(c *client.Cause) string {
	if c == nil {
		return ""
	}
	_, err := scionnet.ParseAddr(c.Peer)
	onTheWay := []client.CauseKind{client.ASUnknown, client.PathDown, client.PeerSilent}
	switch {
	case c.Kind == client.ControlUnreachable || c.Kind == client.ASUnknown && err != nil:
		return "; braid doctor finds out more"
	case err == nil && slices.Contains(onTheWay, c.Kind):
		return fmt.Sprintf("; braid doctor '%s' finds out more", c.Peer)
	}
	return ""
}

// doctorAdvice adds the command that finds out more to the error of a download without progress.
func doctorAdvice(err error) error {
	if stopped := (*client.StoppedError)(nil); errors.As(err, &stopped) {
		if more := askDoctor(stopped.Cause); more != "" {
			return fmt.Errorf("%w%s", err, more)
		}
	}
	return err
}
