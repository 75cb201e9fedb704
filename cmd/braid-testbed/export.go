package main

import (
	"context"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/testbed"
)

func exportCommand() *cli.Command {
	return &cli.Command{
		Name:      "export",
		Usage:     "write a topology for another engine, for more than one machine",
		ArgsUsage: "FILE.topo|" + strings.Join(testbed.Shipped(), "|"),
		Description: "--containerlab writes a directory for containerlab (containerlab.dev): a " +
			"container for each AS, a cable for each link, shaped by the kernel, all " +
			"configuration and programs, a script that drives it, and a README.",
		Flags: []cli.Flag{
			flags.Bool("containerlab", "for containerlab"),
			flags.Needed("output", "write into a new `DIR`", "o"),
			bfdFlag(),
			scionBinFlag(),
		},
		Action: exportTopology,
	}
}

func exportTopology(ctx context.Context, c *cli.Command) error {
	if c.NArg() != 1 {
		return program.UsageErrorf("name one topology; see braid-testbed export --help")
	}
	if !c.Bool("containerlab") {
		return program.UsageErrorf("say for what: --containerlab")
	}
	braid, err := findBraid(c)
	if err != nil {
		return err
	}
	f := &flags.Reader{Command: c}
	o := testbed.ContainerlabOptions{
		Braid: braid, Dir: c.String("output"), SCIONBin: c.String("scion-bin"),
		BFD: flags.Read(f, "bfd", testbed.ParseBFD),
	}
	if f.Err != nil {
		return f.Err
	}
	if o.Topology, err = testbed.LoadTopology(c.Args().First()); err != nil {
		return err
	}
	if err := testbed.ExportContainerlab(ctx, o); err != nil {
		return err
	}
	terminal.Stdout(c).Printf("%s: %d nodes, %d links; see README.md there\n",
		o.Dir, len(o.Topology.ASes), len(o.Topology.Links))
	return nil
}
