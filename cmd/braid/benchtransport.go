package main

import (
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v3"

	"braid/testbed/transportbench"
	"braid/units"
)

func benchTransportCommand() *cli.Command {
	return &cli.Command{
		Name:  "transport",
		Usage: "what moving data costs: TCP, TLS, QUIC over UDP, QUIC over SCION with snet and with braid's packet I/O; and whole downloads",
		Description: `Moves data between two processes on loopback, inside one AS and through two border routers (stock, and the
fast one of 'testbed up --router fast'), over packets of 1400 and of 8400 bytes. The cases take turns. CPU
seconds for each gigabyte tell more than Mbit/s: on a busy machine only the former are steady. braid-scion, braid-tcp and
aria2-tcp are downloads of four times as much by whole clients, which hash it and write it to disk; every byte is
compared.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Aliases: []string{"j"}, Usage: "write one JSON object for each case"},
			&cli.IntFlag{Name: "runs", Value: 5, Usage: "`NUMBER` of runs of each case"},
			&sizeFlag{Name: "size", Value: 64e6, Usage: "move `SIZE` of data in each run"},
			&cli.StringSliceFlag{Name: "case", Usage: "only this `CASE`: tcp, tls, quic-udp, quic-snet, quic-braid, raw, braid-scion, braid-tcp or aria2-tcp (repeatable)"},
			&cli.StringSliceFlag{Name: "routers", Usage: "only cases through these `ROUTERS`: none, stock or fast (repeatable)"},
			&cli.IntSliceFlag{Name: "mtu", Usage: "only cases of this `MTU`: 1400 or 8400 (repeatable)"},
			congestionFlag(),
			&cli.StringFlag{Name: "scion-bin", Usage: "`DIR` of the SCION programs (default: scion beside braid)"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "show no progress"},
		},
		Action: benchTransport,
	}
}

// benchTransportEndCommand is one end of a transfer of it.
func benchTransportEndCommand() *cli.Command {
	return &cli.Command{
		Name:   "transport-end",
		Hidden: true,
		Action: func(ctx context.Context, _ *cli.Command) error {
			in, out := pipes()
			return transportbench.End(ctx, in, out)
		},
	}
}

func benchTransport(ctx context.Context, cmd *cli.Command) error {
	if cmd.Args().Present() {
		return usageErrorf("bench transport takes no arguments, got %q", cmd.Args().First())
	}
	size := cmd.Int64("size")
	if size < 1<<20 || size > 1<<40 {
		return usageErrorf("--size %s: want 1MiB to 1TiB, such as 64MB", units.FormatSize(size))
	}
	if cmd.Int("runs") < 1 {
		return usageErrorf("--runs: want at least 1")
	}
	control, err := parseCongestion(cmd)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("bench transport: %w", err)
	}
	dir, err := os.MkdirTemp("", "braid-bench-")
	if err != nil {
		return fmt.Errorf("bench transport: %w", err)
	}
	defer os.RemoveAll(dir)
	cfg := transportbench.Config{
		End: []string{exe, "bench", "transport-end"}, Dir: dir, SCIONBin: cmd.String("scion-bin"),
		FastRouter: fastRouter(exe), Runs: cmd.Int("runs"), Bytes: size, Only: cmd.StringSlice("case"),
		Braid: exe, Congestion: control, Routers: cmd.StringSlice("routers"), MTUs: cmd.IntSlice("mtu"),
	}
	cfg.Progress = benchProgress(cmd)
	rows := newBenchRows(cmd, "case\tMTU\trouters\tpaths\tMbit/s\t(spread)\tCPU s/GB client\tserver\trouters\tends together\t(spread)\truns\t")
	return rows.end(transportbench.Run(ctx, cfg, func(r transportbench.Row) {
		m, c := r.Spread.MbitS, r.Spread.CPU
		rows.add(r, "%s\t%d\t%s\t%d\t%.0f\t%.0f-%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f-%.2f\t%d\t", r.Case, r.MTU, r.Routers, r.Paths,
			r.MbitS, m[0], m[1], r.CPU.Client, r.CPU.Server, r.CPU.Routers, r.CPU.Client+r.CPU.Server, c[0], c[1], r.Runs)
	}))
}
