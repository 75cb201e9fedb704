package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/scionnet/congestion"
	"braid/testbed/bench"
	"braid/testbed/knowledgebench"
	"braid/testbed/linkemu"
	"braid/testbed/storagebench"
	"braid/testbed/trackerbench"
	"braid/testbed/transportbench"
	"braid/units"
)

func benchCommand() *cli.Command {
	return &cli.Command{
		Name:  "bench",
		Usage: "measure braid's parts on this machine",
		Commands: []*cli.Command{
			benchTransportCommand(),
			benchTrackerCommand(),
			benchKnowledgeCommand(),
			benchLinkCommand(),
			benchStorageCommand(),
			benchDHTCommand(),
			benchWorker("transport-end", transportbench.End),
			benchWorker("tracker-load", trackerbench.Generate),
			benchWorker("storage-leech", storagebench.Leech),
		},
	}
}

// benchWorker is the hidden command of a process that a benchmark starts.
func benchWorker[J any](
	name string, work func(ctx context.Context, job J, report func(any) error) error,
) *cli.Command {
	return &cli.Command{
		Name:   name,
		Hidden: true,
		Action: func(ctx context.Context, c *cli.Command) error {
			env := program.EnvOf(c) // what it writes is data for the process that has started it
			return bench.Work(ctx, env.In, env.Out, work)
		},
	}
}

// benchmark is a running benchmark.
type benchmark struct {
	*flags.Reader
	dir string // for temporary files
}

// benchAction prepares a benchmark, runs it, and removes its files.
func benchAction(run func(context.Context, benchmark) error) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) (err error) {
		if cmd.IsSet("duration") && cmd.Duration("duration") <= 0 {
			return program.UsageErrorf("--duration: want more than 0")
		}
		b := benchmark{Reader: &flags.Reader{Command: cmd}}
		if b.dir, err = os.MkdirTemp(cmd.String("dir"), "braid-bench-"); err != nil {
			return fmt.Errorf("bench %s: %w", cmd.Name, err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
		if err = run(ctx, b); ctx.Err() != nil { // a process that was killed says nothing
			err = ctx.Err()
		}
		return err
	}
}

// worker is the command line of a benchWorker.
func (b benchmark) worker(name string) []string { return []string{ownPath(), "bench", name} }

// progress tells the user what happens next.
func (b benchmark) progress(s string) {
	if !b.Bool("quiet") {
		terminal.Stderr(b.Command).Printf("%s\n", s)
	}
}

func (b benchmark) rows(heads string) *bench.Rows {
	return bench.NewRows(terminal.Stdout(b.Command), b.Bool("json"), heads)
}

func benchJSONFlag() cli.Flag {
	return flags.Bool("json", "write one JSON object for each measurement", "j")
}

func quietFlag() cli.Flag {
	return flags.Bool("quiet", "show no progress", "q")
}

// intsFlag is repeatable.
func intsFlag(name, usage string, values ...int) cli.Flag {
	return &cli.IntSliceFlag{Name: name, Value: values, Usage: usage}
}

// chosen returns the values whose names a repeatable flag has; without the flag all of them.
func chosen[T any](f *flags.Reader, flag string, all []T, name func(T) string) (out []T) {
	names := f.StringSlice(flag)
	var known []string
	for _, v := range all {
		known = append(known, name(v))
		if len(names) == 0 || slices.Contains(names, name(v)) {
			out = append(out, v)
		}
	}
	slices.Sort(known)
	for _, n := range names {
		f.Wantf(slices.Contains(known, n), "--%s %q: want one of %s",
			flag, n, strings.Join(slices.Compact(known), ", "))
	}
	return out
}

// seedFlag is the seed of random choices, which is 1 if nobody sets it.
func seedFlag(usage string) cli.Flag {
	return &cli.Uint64Flag{Name: "seed", Value: 1, Usage: usage}
}

func benchLinkCommand() *cli.Command {
	return &cli.Command{
		Name: "link",
		Usage: "how exactly the link emulator keeps rate, delay and loss, and how much CPU time " +
			"it takes",
		Description: `Sends real packets over emulated links on loopback, one case after the other.
"plain" loads send and receive without segmentation offload, as stock border routers do. Run it on a
machine that does nothing else: "missed" counts packets that the machine lost before they reached
the link, and "late" those that left it more than 2 ms too late.`,
		Flags: []cli.Flag{
			benchJSONFlag(),
			flags.Time("duration", 2*time.Second, "run each case for `TIME`"),
		},
		Action: benchAction(benchLink),
	}
}

func benchLink(ctx context.Context, b benchmark) error {
	cases := linkemu.Cases(b.Duration("duration"))
	b.progress(fmt.Sprintf("%d cases of %s each", len(cases), b.Duration("duration")))
	rows := b.rows("link\tload\tMbit/s\trate error %\tlate p50 ms\tp90\tp99\t" +
		"loss error % (chance)\tCPU s/GB\tmissed\tlate\t")
	for _, c := range cases {
		a, err := linkemu.Measure(ctx, c.Link, c.Load)
		if err != nil {
			return rows.End(err)
		}
		rate, late, loss := "-", "-\t-\t-", "-"
		if a.RateError != nil {
			rate = fmt.Sprintf("%+.3f", *a.RateError)
		}
		if d := a.DelayError; d != nil {
			late = fmt.Sprintf("%.2f\t%.2f\t%.2f", d.P50, d.P90, d.P99)
		}
		if a.LossError != nil {
			loss = fmt.Sprintf("%+.1f (±%.1f)", *a.LossError, *a.LossSigma)
		}
		rows.Add(a, "%s\t%s\t%.1f\t%s\t%s\t%s\t%.2f\t%d\t%d\t",
			a.Link, a.Load, a.MbitS, rate, late, loss, a.CPUSecondsPerGB, a.Missed, a.Late)
	}
	return rows.End(nil)
}

func benchKnowledgeCommand() *cli.Command {
	return &cli.Command{
		Name:  "knowledge",
		Usage: "how much sooner downloads are done if the tracker names near peers and good paths",
		Description: `Plays downloads between 16 regions with measured delays and random link rates,
in simulated time, with the default path selection and the tracker's own path knowledge. "peers":
leechers in all regions come one after another and get four seeds: random ones, the nearest, or half
and half. "paths": several leechers in one region share one seed with 15 paths, of which each may
use two at a time; with "lies" the tracker names the worst paths. Times are in seconds, median and
90th percentile.`,
		Flags: []cli.Flag{
			benchJSONFlag(),
			flags.Count("worlds", 8, "`NUMBER` of networks with different random rates"),
			seedFlag("`NUMBER` from which all random values are drawn"),
		},
		Action: benchAction(benchKnowledge),
	}
}

func benchKnowledge(ctx context.Context, b benchmark) error {
	cfg := knowledgebench.Config{Worlds: b.Int("worlds"), Seed: b.Uint64("seed")}
	rows := b.rows("experiment\tpeers\thints\tleecher\truns\tfirst piece\t90%\t" +
		"best paths\t90%\tdone\t90%\tfirst 30 s, Mbit/s\t")
	return rows.End(knowledgebench.Run(ctx, cfg, func(r knowledgebench.Row) {
		best := "-\t-"
		if r.BestSet != (knowledgebench.Spread{}) {
			best = fmt.Sprintf("%.2f\t%.2f", r.BestSet.P50, r.BestSet.P90)
		}
		rows.Add(r, "%s\t%s\t%s\t%s\t%d\t%.2f\t%.2f\t%s\t%.1f\t%.1f\t%.2f\t",
			r.Experiment, r.Order, r.Hints, r.Nth, r.Runs,
			r.First.P50, r.First.P90, best, r.Done.P50, r.Done.P90, r.Early.P50)
	}))
}

func benchTransportCommand() *cli.Command {
	return &cli.Command{
		Name: "transport",
		Usage: "CPU time and rate of moving data over TCP, TLS, QUIC over UDP, and QUIC over " +
			"SCION with snet and with braid's packet I/O",
		Description: `Moves data between two processes on loopback, inside one AS and through two
border routers (stock, and the fast one of 'braid-testbed up --router fast'), in packets of 1400 and
of 8400 bytes. The cases take turns. Compare the CPU seconds for each gigabyte rather than the rates,
which vary on a busy machine. braid-scion, braid-tcp and aria2-tcp are downloads of four times as
much data by whole clients, which also hash it and write it to disk; every byte is compared. "gap" is
the longest time without new payload during such a download, as the downloading braid reports it
every 10 ms (aria2 reports none).`,
		Flags: []cli.Flag{
			benchJSONFlag(),
			flags.Count("runs", 5, "`NUMBER` of runs of each case"),
			flags.Size("size", 64e6, "move `SIZE` of data in each run"),
			flags.List("case", "only this `CASE`: tcp, tls, quic-udp, quic-snet, quic-braid, raw, "+
				"braid-scion, braid-tcp or aria2-tcp (repeatable)"),
			flags.List("routers", "only cases through these `ROUTERS`: none, stock or fast "+
				"(repeatable)"),
			flags.List("mtu", "only cases of this `MTU`: 1400 or 8400 (repeatable)"),
			flags.List("paths", "only cases over this `NUMBER` of paths: 1 or 2 (repeatable)"),
			intsFlag("seeds", "in downloads, `NUMBER` of processes that serve the data "+
				"(repeatable)",
				1),
			flags.Congestion(),
			scionBinFlag(),
			quietFlag(),
		},
		Action: benchAction(benchTransport),
	}
}

func benchTransport(ctx context.Context, b benchmark) error {
	size := b.Int64("size")
	b.Wantf(size >= 1<<20 && size <= 1<<40, "--size %s: want 1MiB to 1TiB, such as 64MB",
		units.FormatSize(size))
	control := flags.Read(b.Reader, "congestion", congestion.ParseAlgorithm)
	type row = transportbench.Row
	cases := chosen(b.Reader, "case", transportbench.Cases(), func(r row) string { return r.Case })
	cases = chosen(b.Reader, "routers", cases, func(r row) string { return r.Routers })
	cases = chosen(b.Reader, "mtu", cases, func(r row) string { return strconv.Itoa(r.MTU) })
	cases = chosen(b.Reader, "paths", cases, func(r row) string { return strconv.Itoa(r.Paths) })
	seeds := b.IntSlice("seeds")
	for _, n := range seeds {
		b.Wantf(n >= 1 && n <= 64, "--seeds %d: want 1 to 64", n)
	}
	if b.Err != nil {
		return b.Err
	}
	braid, err := findBraid(b.Command)
	if err != nil {
		return err
	}
	cfg := transportbench.Config{
		End:        b.worker("transport-end"),
		Dir:        b.dir,
		SCIONBin:   b.String("scion-bin"),
		FastRouter: fastRouter(),
		Braid:      braid,
		Congestion: control,
		Runs:       b.Int("runs"),
		Bytes:      size,
		Cases:      transportbench.WithSeeds(cases, seeds),
		Progress:   b.progress,
	}
	rows := b.rows("case\tMTU\trouters\tpaths\tseeds\tMbit/s\t(spread)\tgap s\t" +
		"CPU s/GB client\tserver\trouters\tends together\t(spread)\truns\t")
	return rows.End(transportbench.Run(ctx, cfg, func(r transportbench.Row) {
		m, cpu, spread := r.Spread.MbitS, r.CPU, r.Spread.CPU
		gap := "-"
		if r.Gap != nil {
			gap = fmt.Sprintf("%.3f", *r.Gap)
		}
		rows.Add(r, "%s\t%d\t%s\t%d\t%d\t%.0f\t%.0f-%.0f\t%s\t"+
			"%.2f\t%.2f\t%.2f\t%.2f\t%.2f-%.2f\t%d\t",
			r.Case, r.MTU, r.Routers, r.Paths, r.Seeds, r.MbitS, m[0], m[1], gap,
			cpu.Client, cpu.Server, cpu.Routers, cpu.Client+cpu.Server, spread[0], spread[1],
			r.Runs)
	}))
}
