package main

import (
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"braid/storage"
)

func benchStorageCommand() *cli.Command {
	return &cli.Command{
		Name:  "storage",
		Usage: "how fast the backends write and read pieces, next to plain pwrite and pread",
		Description: "Blocks of 16 KiB, piece by piece, with the calls that the BitTorrent engine makes, hashing excluded; the disk is\n" +
			"synced at the end of writing, which counts. \"of limit\" compares the time of writing and reading with plain pwrite\n" +
			"and pread in the same run. Memory is what the process has beside files.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Aliases: []string{"j"}, Usage: "write one JSON object for each case"},
			&cli.IntFlag{Name: "size", Value: 256, Usage: "`MiB` of each case"},
			&cli.StringFlag{Name: "dir", Usage: "measure the disk of `DIR` (default: that of temporary files)"},
		},
		Action: benchStorage,
	}
}

func benchStorage(ctx context.Context, cmd *cli.Command) error {
	if cmd.Args().Present() {
		return usageErrorf("bench storage takes no arguments, got %q", cmd.Args().First())
	}
	if cmd.Int("size") < 16 {
		return usageErrorf("--size %d: want at least 16", cmd.Int("size"))
	}
	out := cmd.Root().Writer
	encoder := json.NewEncoder(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "storage\torder\tpiece KiB\twrite MB/s\tof limit\tread MB/s\tof limit\tCPU s/GB\tallocated MB\tpeak MiB\t")
	var limit storage.BenchResult
	for _, c := range storage.BenchCases(int64(cmd.Int("size")) << 20) {
		r, err := storage.Measure(ctx, c, cmd.String("dir"))
		if err != nil {
			return fmt.Errorf("measure %s: %w", c, err)
		}
		if c.Storage == "limit" {
			limit = r
		}
		if cmd.Bool("json") {
			if err := encoder.Encode(r); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%.0f\t%.2f\t%.0f\t%.2f\t%.2f\t%.1f\t%.0f\t\n", c.Storage, c.Order, c.PieceLength>>10,
			r.WriteMBs, r.WriteMBs/limit.WriteMBs, r.ReadMBs, r.ReadMBs/limit.ReadMBs, r.CPUPerGB, float64(r.AllocBytes)/1e6, r.PeakAnonMiB)
	}
	if cmd.Bool("json") {
		return nil
	}
	return table.Flush()
}
