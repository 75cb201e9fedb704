package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v3"

	"braid/storage"
	"braid/testbed/storagebench"
)

func benchStorageCommand() *cli.Command {
	return &cli.Command{
		Name:  "storage",
		Usage: "how fast the backends write and read pieces, next to plain pwrite and pread",
		Description: "Blocks of 16 KiB, piece by piece, with the calls that the BitTorrent engine makes, hashing excluded; the disk is\n" +
			"synced at the end of writing, which counts. \"of limit\" compares the time of writing and reading with plain pwrite\n" +
			"and pread of the same blocks in the same run. Cases take turns, figures are medians. Memory is what the process\n" +
			"has beside files.\n\n" +
			"With --downloads whole torrents are downloaded over TCP on loopback, into braid's backends and into those that\n" +
			"the engine comes with.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Aliases: []string{"j"}, Usage: "write one JSON object for each case"},
			&cli.IntSliceFlag{Name: "size", Usage: "`MiB` of each case, or of the torrents with --downloads (default: 256, or 2000; repeatable)"},
			&cli.IntFlag{Name: "runs", Usage: "`NUMBER` of runs of each case (default: 3; of downloads: 1)"},
			&cli.BoolFlag{Name: "downloads", Usage: "compare whole downloads"},
			&cli.StringSliceFlag{Name: "storage", Usage: "with --downloads: only this `BACKEND`: file, mmap, bolt, engine-file, engine-mmap, engine-bolt (repeatable)"},
			&cli.StringFlag{Name: "dir", Usage: "measure the disk of `DIR` (default: that of temporary files)"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "show no progress"},
		},
		Action: benchStorage,
	}
}

// benchStorageLeechCommand is one download of it.
func benchStorageLeechCommand() *cli.Command {
	return &cli.Command{
		Name:   "storage-leech",
		Hidden: true,
		Action: func(ctx context.Context, _ *cli.Command) error {
			in, out := pipes()
			return storagebench.Leech(ctx, in, out)
		},
	}
}

func benchStorage(ctx context.Context, cmd *cli.Command) error {
	if cmd.Args().Present() {
		return usageErrorf("bench storage takes no arguments, got %q", cmd.Args().First())
	}
	downloads := cmd.Bool("downloads")
	sizes, runs := cmd.IntSlice("size"), cmd.Int("runs")
	for _, n := range sizes {
		if n < 16 || n > 1<<20 {
			return usageErrorf("--size %d: want 16 to 1048576", n)
		}
	}
	switch {
	case cmd.IsSet("runs") && runs < 1:
		return usageErrorf("--runs %d: want at least 1", runs)
	case !downloads && len(sizes) > 1:
		return usageErrorf("--size: once, except with --downloads")
	case !downloads && cmd.IsSet("storage"):
		return usageErrorf("--storage: only with --downloads")
	}
	if downloads {
		return benchDownloads(ctx, cmd, sizes, max(1, runs))
	}
	size := 256
	if len(sizes) > 0 {
		size = sizes[0]
	}
	if runs == 0 {
		runs = 3
	}
	progress := benchProgress(cmd)
	cases := storage.BenchCases(int64(size) << 20)
	results := make([][]storage.BenchResult, len(cases))
	for run := range runs {
		progress(fmt.Sprintf("run %d of %d: %d cases of %d MiB", run+1, runs, len(cases), size))
		for i, c := range cases {
			r, err := storage.Measure(ctx, c, cmd.String("dir"))
			if err != nil {
				return fmt.Errorf("measure %s: %w", c, err)
			}
			results[i] = append(results[i], r)
		}
	}
	rows := newBenchRows(cmd, "storage\torder\tpiece KiB\twrite MB/s\tof limit\tread MB/s\tof limit\tCPU s/GB\tallocated MB\tpeak MiB\t")
	var limit storage.BenchResult
	for i, c := range cases {
		r := storage.Median(results[i])
		if c.Storage == "limit" {
			limit = r
		}
		rows.add(r, "%s\t%s\t%d\t%.0f\t%.2f\t%.0f\t%.2f\t%.2f\t%.1f\t%.0f\t", c.Storage, c.Order, c.PieceLength>>10,
			r.WriteMBs, r.WriteMBs/limit.WriteMBs, r.ReadMBs, r.ReadMBs/limit.ReadMBs, r.CPUPerGB, float64(r.AllocBytes)/1e6, r.PeakAnonMiB)
	}
	return rows.end(nil)
}

func benchDownloads(ctx context.Context, cmd *cli.Command, sizes []int, runs int) (err error) {
	if len(sizes) == 0 {
		sizes = []int{2000}
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("bench storage: %w", err)
	}
	dir, err := os.MkdirTemp(cmd.String("dir"), "braid-bench-")
	if err != nil {
		return fmt.Errorf("bench storage: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg := storagebench.Config{
		Leech: []string{exe, "bench", "storage-leech"}, Dir: dir, Runs: runs, Only: cmd.StringSlice("storage"), Progress: benchProgress(cmd),
	}
	for _, n := range sizes {
		cfg.Sizes = append(cfg.Sizes, int64(n)<<20)
	}
	rows := newBenchRows(cmd, "storage\tMiB\tMB/s\t(spread)\tCPU s/GB\tallocated MB\tpeak MiB\truns\t")
	return rows.end(storagebench.Run(ctx, cfg, func(r storagebench.Row) {
		rows.add(r, "%s\t%d\t%.0f\t%.0f-%.0f\t%.2f\t%.0f\t%.0f\t%d\t", r.Storage, r.Bytes>>20, r.MBs, r.Least, r.Most,
			r.CPUPerGB, float64(r.AllocBytes)/1e6, r.PeakAnonMiB, r.Runs)
	}))
}
