package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/testbed"
	"braid/testbed/dhtbench"
)

func benchDHTCommand() *cli.Command {
	var cases []string
	for _, c := range dhtbench.Cases {
		cases = append(cases, c.Name+" ("+c.About+")")
	}
	return &cli.Command{
		Name:  "dht",
		Usage: "simulate DHTs of many nodes in virtual time: hops, success and load",
		Description: "The nodes are those that braid dht runs; messages take 25 to 75 ms. A peer " +
			"of each torrent announces it, and later other nodes search for it. Cases: " +
			strings.Join(cases, "; ") + ".",
		Flags: []cli.Flag{
			benchJSONFlag(),
			intsFlag("nodes", "simulate `N` nodes (repeatable)", 100, 1000, 10_000),
			flags.List("case", "only this `CASE` (repeatable)"),
			seedFlag("`NUMBER` from which all random choices are drawn"),
			flags.String("figure", "", "draw the results as dht-by-size.svg in `DIR`, with their "+
				"numbers as CSV"),
			flags.Bool("testbed", "run the nodes (default: 200) in real time on a SCION network "+
				"of this machine, with a round trip of 100 ms between any two ASes"),
			flags.Int("ases", 16, "with --testbed: `NUMBER` of ASes"),
			scionBinFlag(),
			flags.String("from", "", "draw the results that --json has written to `FILE` instead "+
				"of simulating"),
		},
		Action: benchAction(benchDHT),
	}
}

func benchDHT(ctx context.Context, b benchmark) error {
	var rows []dhtbench.Row
	var err error
	switch name := b.String("from"); {
	case name != "" && b.String("figure") == "":
		return program.UsageErrorf("--from: name the folder of the figure with --figure")
	case name != "":
		rows, err = readDHTRows(name)
	default:
		rows, err = measureDHT(ctx, b)
	}
	if err != nil || b.String("figure") == "" {
		return err
	}
	return dhtbench.Draw(rows).Write(b.String("figure"), ".svg", ".csv")
}

// measureDHT measures the cases that the flags name, in simulations or on a testbed.
func measureDHT(ctx context.Context, b benchmark) (rows []dhtbench.Row, err error) {
	cases := chosen(b.Reader, "case", dhtbench.Cases,
		func(c dhtbench.Case) string { return c.Name })
	sizes := b.IntSlice("nodes")
	for _, n := range sizes {
		b.Wantf(n >= 10, "--nodes %d: want at least 10", n)
	}
	if b.Err != nil {
		return nil, b.Err
	}
	measure := func(c dhtbench.Case, n int) (dhtbench.Row, error) {
		return dhtbench.Measure(ctx, c, n, b.Uint64("seed"))
	}
	if b.Bool("testbed") {
		if !b.IsSet("nodes") {
			sizes = []int{200}
		}
		var net *dhtbench.Network
		if net, err = b.openStar(ctx); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, net.Close()) }()
		measure = func(c dhtbench.Case, n int) (dhtbench.Row, error) {
			cfg := dhtbench.OnNetwork(n)
			cfg.Seed = b.Uint64("seed")
			return net.Measure(ctx, c, cfg)
		}
	}
	table := b.rows("case\tnodes\tfound %\thops\tp95 hops\tp95 s\tqueries\tB/s\tp99 B/s\tseconds\t")
	for _, n := range sizes {
		for _, c := range cases {
			b.progress(fmt.Sprintf("%s, %d nodes", c.Name, n))
			r, err := measure(c, n)
			if err != nil {
				return nil, table.End(err)
			}
			rows = append(rows, r)
			table.Add(r, "%s\t%d\t%.1f\t%.2f\t%.0f\t%.2f\t%.1f\t%.0f\t%.0f\t%.0f\t",
				r.Case, r.Nodes, 100*r.Found, r.HopsMean, r.HopsP95, r.P95,
				r.Queries, r.LoadMean, r.LoadP99, r.Seconds)
		}
	}
	return rows, table.End(nil)
}

// openStar starts the network of --testbed, with a host in each AS.
func (b benchmark) openStar(ctx context.Context) (*dhtbench.Network, error) {
	if n := b.Int("ases"); n < 3 || n > 64 {
		return nil, program.UsageErrorf("--ases %d: want 3 to 64", n)
	}
	topology, err := dhtbench.Star(b.Int("ases"), 100*time.Millisecond)
	if err != nil {
		return nil, err
	}
	b.progress(fmt.Sprintf("starting a SCION network of %d ASes", len(topology.ASes)))
	return dhtbench.Open(ctx, testbed.Options{
		Topology: topology, Dir: b.dir, SCIONBin: b.String("scion-bin"),
	})
}

// readDHTRows reads the output of --json.
func readDHTRows(name string) (rows []dhtbench.Row, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the results: %w", err)
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var r dhtbench.Row
		err := d.Decode(&r)
		switch {
		case errors.Is(err, io.EOF) && len(rows) > 0:
			return rows, nil
		case errors.Is(err, io.EOF), err == nil && r.Nodes < 1:
			return nil, fmt.Errorf("%s has no results of bench dht --json", name)
		case err != nil:
			return nil, fmt.Errorf("read the results %s: %w", name, err)
		}
		rows = append(rows, r)
	}
}
