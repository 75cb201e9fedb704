//go:build !small

package main

import (
	"context"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/testbed"
)

func testbedExportCommand() *cli.Command {
	return &cli.Command{
		Name:      "export",
		Usage:     "write a topology for another engine, for more than one machine",
		ArgsUsage: "FILE.topo|" + strings.Join(testbed.Shipped(), "|"),
		Description: "--containerlab writes a directory for containerlab (containerlab.dev): a " +
			"container for each AS, a cable for each link, shaped by the kernel, all " +
			"configuration and programs, a script that drives it, and a README.",
		Flags: []cli.Flag{
			boolFlag("containerlab", "for containerlab"),
			neededFlag("output", "write into a new `DIR`", "o"),
			bfdFlag(),
			scionBinFlag(),
		},
		Action: testbedExport,
	}
}

func testbedExport(ctx context.Context, c *cli.Command) error {
	if c.NArg() != 1 {
		return usageErrorf("name one topology; see braid testbed export --help")
	}
	if !c.Bool("containerlab") {
		return usageErrorf("say for what: --containerlab")
	}
	f := &flags{Command: c}
	o := testbed.ContainerlabOptions{
		Braid: ownPath(), Dir: c.String("output"), SCIONBin: c.String("scion-bin"),
		BFD: read(f, "bfd", testbed.ParseBFD),
	}
	if f.err != nil {
		return f.err
	}
	var err error
	if o.Topology, err = testbed.LoadTopology(c.Args().First()); err != nil {
		return err
	}
	if err := testbed.ExportContainerlab(ctx, o); err != nil {
		return err
	}
	stdout(c).printf("%s: %d nodes, %d links; see README.md there\n",
		o.Dir, len(o.Topology.ASes), len(o.Topology.Links))
	return nil
}
