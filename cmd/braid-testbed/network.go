package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/pathsel"
	"braid/testbed"
)

// dirFlag names the directory of a network.
func dirFlag() cli.Flag { return flags.Needed("dir", "directory `DIR` of the network", "d") }

func jsonFlag() cli.Flag { return flags.Bool("json", "print JSON") }

func downCommand() *cli.Command {
	return &cli.Command{
		Name:  "down",
		Usage: "take the network down",
		Flags: []cli.Flag{dirFlag()},
		Action: func(ctx context.Context, c *cli.Command) error {
			return testbed.Down(ctx, c.String("dir"))
		},
	}
}

func statusCommand() *cli.Command {
	return &cli.Command{
		Name: "status",
		Usage: "show hosts, processes, paths and links; exit code 1 if a process or a path is " +
			"missing",
		Flags: []cli.Flag{
			dirFlag(), jsonFlag(),
			flags.Bool("no-paths", "do not count paths, which takes long in a large network"),
		},
		Action: statusNetwork,
	}
}

// superviseCommand is the background half of up.
func superviseCommand() *cli.Command {
	return &cli.Command{
		Name:   "supervise",
		Hidden: true,
		Action: func(ctx context.Context, c *cli.Command) error {
			env := program.EnvOf(c)
			log := slog.New(terminal.Stderr(c).Handler(slog.LevelDebug))
			return testbed.Supervise(ctx, env.In, env.Out, log)
		},
	}
}

// upCommand starts a network.
func upCommand() *cli.Command {
	return &cli.Command{
		Name:      "up",
		Usage:     "start a network in the background and wait until all paths are available",
		ArgsUsage: "FILE.topo|" + strings.Join(testbed.Shipped(), "|"),
		Flags: append(routerFlags(),
			routerOfFlag(), dirFlag(),
			flags.Bool("foreground", "stay, and take the network down on Ctrl-C", "f"),
			bfdFlag(),
			flags.Time("path-lifetime", 0, "let paths expire after `TIME`, a multiple of 5m37.5s "+
				"up to 24h (default: 6h)"),
			flags.String("subnet", "", "`PREFIX` of 127.0.0.0/8 to use, such as 127.77.0.0/24, or "+
				"of private addresses that this host has (default: a free one)"),
			scionBinFlag(),
			flags.Time("timeout", 0, "wait at most `TIME` for the paths (default: 60s plus 5s for "+
				"each AS)"),
			quietFlag(),
			jsonFlag(),
		),
		Action: upNetwork,
	}
}

func upNetwork(ctx context.Context, c *cli.Command) error {
	if c.NArg() != 1 {
		return program.UsageErrorf("name one topology: a file, or %s; see braid-testbed up --help",
			strings.Join(testbed.Shipped(), ", "))
	}
	topology, err := testbed.LoadTopology(c.Args().First())
	if err != nil {
		return err
	}
	f := &flags.Reader{Command: c}
	opts := testbed.Options{
		Topology: topology, Dir: c.String("dir"), SCIONBin: c.String("scion-bin"),
		RouterCommand: readRouter(f), RoutersOf: readRoutersOf(f),
		BFD:          flags.Read(f, "bfd", testbed.ParseBFD),
		PathLifetime: c.Duration("path-lifetime"), Timeout: c.Duration("timeout"),
	}
	if s := c.String("subnet"); s != "" {
		opts.Subnet, err = netip.ParsePrefix(s)
		f.Wantf(err == nil, "--subnet %q: want a prefix such as 127.77.0.0/24", s)
	}
	if f.Err != nil {
		return fmt.Errorf("up: %w", f.Err)
	}
	show := &upProgress{
		out: terminal.Stderr(c), quiet: c.Bool("quiet"), name: topology.Name, started: time.Now(),
	}
	opts.Progress = show.update
	if c.Bool("foreground") {
		opts.Log = slog.New(terminal.Stderr(c).Handler(slog.LevelInfo))
		n, err := testbed.Start(ctx, opts)
		show.end(err)
		if err != nil {
			return err
		}
		defer n.Close()
		if err := printState(terminal.Stdout(c), n.State(), c.Bool("json")); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-n.Done():
		}
		return nil
	}
	err = testbed.Launch(ctx, []string{ownPath(), "supervise"}, opts)
	show.end(err)
	if err != nil {
		return err
	}
	state, err := testbed.StateOf(opts.Dir)
	if err != nil {
		return err
	}
	return printState(terminal.Stdout(c), state, c.Bool("json"))
}

// printState prints how to use a network that is up.
func printState(out *terminal.Printer, s testbed.State, asJSON bool) error {
	if asJSON {
		return terminal.PrintJSON(out, s)
	}
	printHosts(out, s.ASes)
	return nil
}

func printHosts(out *terminal.Printer, ases []testbed.ASStatus) {
	t := terminal.NewTable(out)
	t.Printf("ISD-AS\tHOST\tCONFIG DIR\n")
	for _, a := range ases {
		t.Printf("%s\t%s\t%s\n", a.IA, a.Host, a.ConfigDir)
	}
	t.Flush()
}

func statusNetwork(ctx context.Context, c *cli.Command) error {
	s, err := testbed.StatusOf(ctx, c.String("dir"), !c.Bool("no-paths"))
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = terminal.PrintJSON(terminal.Stdout(c), s)
	} else {
		printStatus(terminal.Stdout(c), s)
	}
	if err == nil && !s.Healthy() {
		err = errors.New("a process or a path of the testbed is missing")
	}
	return err
}

func printStatus(out *terminal.Printer, s testbed.Status) {
	var cpu float64
	var memory int64
	for _, p := range s.Processes {
		cpu, memory = cpu+p.CPU, memory+p.PSS
	}
	out.Printf("%s in %s, up for %.0f s, process %d, addresses %s; "+
		"%d processes: %.1f CPU s, %d MiB\n\n",
		s.Topology, s.Dir, s.Seconds, s.PID, s.Subnet, len(s.Processes), cpu, memory>>20)
	printHosts(out, s.ASes)
	t := terminal.NewTable(out)
	t.Printf("\nPROCESS\tPID\tSTATE\tCPU s\tMiB\n")
	for _, p := range s.Processes {
		state := "running"
		if !p.Running {
			state, _, _ = strings.Cut(p.Reason, ";")
			state = "ended: " + state
		}
		t.Printf("%s %s\t%d\t%s\t%.1f\t%d\n", p.IA, p.Name, p.PID, state, p.CPU, p.PSS>>20)
	}
	t.Flush()
	if len(s.Pairs) > 0 {
		t = terminal.NewTable(out)
		t.Printf("\nFROM\tTO\tPATHS\n")
		for _, p := range s.Pairs {
			missing := ""
			if p.Paths < p.Implied {
				missing = fmt.Sprintf(", %d missing", p.Implied-p.Paths)
			}
			if p.Up < p.Paths {
				missing += fmt.Sprintf(", %d over a link that is down", p.Paths-p.Up)
			}
			t.Printf("%s\t%s\t%d of %d%s\n", p.Src, p.Dst, p.Paths, p.Implied, missing)
		}
		t.Flush()
	}
	t = terminal.NewTable(out)
	t.Printf("\nLINK, SENDING END\tTO\tSTATE\tBFD CHANGES\tPACKETS\tBYTES\t" +
		"DROPPED queue/loss/down\tPROPERTIES\n")
	for _, l := range s.Links {
		for _, e := range [][2]testbed.LinkEndStatus{{l.A, l.B}, {l.B, l.A}} {
			k := e[0].Counters
			t.Printf("%s\t%s\t%s\t%d\t%d\t%d\t%d/%d/%d\t%s\n",
				e[0].Interface, e[1].Interface, e[0].State, e[0].BFDTransitions,
				k.Packets, k.Bytes, k.DroppedQueue, k.DroppedLoss, k.DroppedDown, e[0].Properties)
		}
	}
	t.Flush()
}

// linkProperties are the flags of `testbed link` that testbed.LinkChange.Set reads.
func linkProperties() []cli.Flag {
	return []cli.Flag{
		flags.String("rate", "", "let through `RATE`, such as 20Mbit/s; 0: not limited"),
		flags.String("delay", "", "one way, add `TIME`, such as 30ms"),
		flags.String("jitter", "", "add 0 to `TIME` to the delay, such as 5ms"),
		flags.String("loss", "", "lose `PERCENT` of the packets, such as 1%"),
		flags.String("queue", "", "hold at most `LENGTH`: a size or the time to drain it, such as "+
			"64KiB or 50ms; 0: from rate and delay"),
		flags.Bool("police", "drop packets above the rate at once; --queue is the size of the "+
			"token bucket (--police=false: the opposite)"),
		flags.String("mtu", "", "drop SCION packets of more than `BYTES`, whatever MTU the link "+
			"announces; 0: not limited"),
		flags.Bool("too-big", "answer packets above --mtu with an error of the router instead of "+
			"dropping them silently (--too-big=false: the opposite)"),
	}
}

// linkCommand changes a link.
func linkCommand() *cli.Command {
	return &cli.Command{
		Name:      "link",
		Usage:     "change a link while traffic flows",
		ArgsUsage: "ISD-AS#INTERFACE",
		Flags: append(append([]cli.Flag{dirFlag()}, linkProperties()...),
			flags.Bool("down", "drop everything"),
			flags.Bool("up", "the opposite of --down"),
			flags.Choice("direction", "both", "change this `DIRECTION`: out (leaving the AS at "+
				"the interface), in, or both", "out", "in", "both"),
		),
		Action: func(ctx context.Context, c *cli.Command) error {
			change, err := linkChange(c)
			if err != nil {
				return err
			}
			err = testbed.ChangeLink(ctx, c.String("dir"), change)
			if errors.As(err, new(testbed.Refusal)) { // such as an interface that is not there
				return program.UsageErrorf("%w", err)
			}
			return err
		},
	}
}

func linkChange(c *cli.Command) (l testbed.LinkChange, err error) {
	f := &flags.Reader{Command: c}
	f.Wantf(c.NArg() == 1, "name one interface, such as 1-ff00:0:110#1; "+
		"see braid-testbed link --help")
	l.Interface, err = pathsel.ParseInterface(c.Args().First())
	f.Wantf(err == nil, "%w", err)
	l.Direction = c.String("direction")
	given := false
	var properties []string
	for _, p := range linkProperties() {
		name := p.Names()[0]
		properties = append(properties, name)
		if c.IsSet(name) {
			given = true
			err := l.Set(name, fmt.Sprint(c.Value(name)))
			f.Wantf(err == nil, "--%s: %w", name, err)
		}
	}
	up, down := c.Bool("up"), c.Bool("down")
	f.Wantf(!up || !down, "--up and --down exclude each other")
	f.Wantf(given || up || down, "nothing to change: give --%s, --down or --up",
		strings.Join(properties, ", --"))
	if up || down {
		l.Down = &down
	}
	return l, f.Err
}

// upProgress shows the progress of a start, in a log each step.
type upProgress struct {
	out     *terminal.Printer
	quiet   bool
	name    string
	started time.Time
	last    testbed.Progress
}

func (u *upProgress) update(p testbed.Progress) {
	if u.quiet {
		return
	}
	due := p != u.last
	u.last = p
	line := fmt.Sprintf("%s: %d processes, links %d/%d, segments %d/%d, paths %d/%d, %.1f s",
		u.name, p.Processes, p.Links, p.ImpliedLinks, p.Segments, p.ImpliedSegments,
		p.Paths, p.ImpliedPaths, time.Since(u.started).Seconds())
	u.out.Progress(line, due)
}

func (u *upProgress) end(err error) {
	if u.quiet {
		return
	}
	u.out.Clear()
	if err == nil {
		u.out.Printf("%s is up after %.1f s: %d processes, %d paths\n",
			u.name, time.Since(u.started).Seconds(), u.last.Processes, u.last.Paths)
	}
}

// hostCommand runs a program on a host of its own. It is for the testbed, not for users.
func hostCommand() *cli.Command {
	return &cli.Command{
		Name: "host", Hidden: true,
		Usage:     "run a command in a network namespace that a testbed has made",
		ArgsUsage: "COMMAND [ARG...]",
		Flags: []cli.Flag{
			flags.String("address", "", "IPv4 `ADDRESS/BITS` of the host"),
			flags.Int("mtu", 0, "`BYTES` of an IP packet"),
		},
		Action: func(_ context.Context, cmd *cli.Command) error {
			p, err := netip.ParsePrefix(cmd.String("address"))
			if err != nil {
				return program.UsageErrorf("--address: %w", err)
			}
			return testbed.RunInNamespace(p, cmd.Int("mtu"), cmd.Args().Slice())
		},
	}
}
