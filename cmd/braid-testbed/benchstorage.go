package main

import (
	"cmp"
	"context"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/testbed/storagebench"
)

func benchStorageCommand() *cli.Command {
	return &cli.Command{
		Name:  "storage",
		Usage: "how fast the backends write and read pieces, next to plain pwrite and pread",
		Description: `Writes and reads blocks of 16 KiB, piece by piece, with the calls of the
BitTorrent engine and without hashing. The time of writing includes syncing the disk. "of limit"
compares the rates with those of plain pwrite and pread of the same blocks in the same run. The
cases take turns, and the figures are medians. Memory excludes files.

--downloads downloads whole torrents over TCP on loopback instead, with braid's backends and with
those of the engine.`,
		Flags: []cli.Flag{
			benchJSONFlag(),
			intsFlag("size", "`MiB` of each case, or of the torrents with --downloads (default: "+
				"256, or 2000; repeatable)"),
			flags.Count("runs", 0, "`NUMBER` of runs of each case (default: 3; of downloads: 1)"),
			flags.Bool("downloads", "compare whole downloads"),
			flags.List("storage", "with --downloads: only this `BACKEND`: file, mmap, bolt, "+
				"engine-file, engine-mmap, engine-bolt (repeatable)"),
			flags.String("dir", "", "measure the disk of `DIR` (default: that of temporary files)"),
			quietFlag(),
		},
		Action: benchAction(benchStorage),
	}
}

func benchStorage(ctx context.Context, b benchmark) error {
	downloads, sizes := b.Bool("downloads"), b.IntSlice("size")
	for _, n := range sizes {
		b.Wantf(n >= 16 && n <= 1<<20, "--size %d: want 16 to 1048576", n)
	}
	b.Wantf(downloads || len(sizes) <= 1, "--size: once, except with --downloads")
	b.Wantf(downloads || !b.IsSet("storage"), "--storage: only with --downloads")
	kinds := chosen(b.Reader, "storage", storagebench.Kinds, func(k string) string { return k })
	if b.Err != nil {
		return b.Err
	}
	if downloads {
		return benchDownloads(ctx, b, kinds, sizes)
	}
	size := 256
	if len(sizes) > 0 {
		size = sizes[0]
	}
	rows := b.rows("storage\torder\tpiece KiB\twrite MB/s\tof limit\tread MB/s\tof limit\t" +
		"CPU s/GB\tallocated MB\tpeak MiB\t")
	var limit storagebench.Result
	add := func(r storagebench.Result) {
		if r.Storage == "limit" {
			limit = r
		}
		rows.Add(r, "%s\t%s\t%d\t%.0f\t%.2f\t%.0f\t%.2f\t%.2f\t%.1f\t%.0f\t",
			r.Storage, r.Order, r.PieceLength>>10,
			r.WriteMBs, r.WriteMBs/limit.WriteMBs, r.ReadMBs, r.ReadMBs/limit.ReadMBs,
			r.CPUPerGB, float64(r.AllocBytes)/1e6, r.PeakAnonMiB)
	}
	c := storagebench.Comparison{
		Cases: storagebench.Cases(int64(size) << 20), Runs: cmp.Or(b.Int("runs"), 3),
		Dir: b.dir, Progress: b.progress,
	}
	return rows.End(c.Run(ctx, add))
}

func benchDownloads(ctx context.Context, b benchmark, kinds []string, sizes []int) error {
	if len(sizes) == 0 {
		sizes = []int{2000}
	}
	braid, err := findBraid(b.Command)
	if err != nil {
		return err
	}
	cfg := storagebench.Config{
		Braid: braid, Leech: b.worker("storage-leech"), Dir: b.dir,
		Runs: max(1, b.Int("runs")), Kinds: kinds, Progress: b.progress,
	}
	for _, n := range sizes {
		cfg.Sizes = append(cfg.Sizes, int64(n)<<20)
	}
	rows := b.rows("storage\tMiB\tMB/s\t(spread)\tCPU s/GB\tallocated MB\tpeak MiB\truns\t")
	return rows.End(storagebench.Run(ctx, cfg, func(r storagebench.Row) {
		rows.Add(r, "%s\t%d\t%.0f\t%.0f-%.0f\t%.2f\t%.0f\t%.0f\t%d\t",
			r.Storage, r.Bytes>>20, r.MBs, r.Least, r.Most,
			r.CPUPerGB, float64(r.AllocBytes)/1e6, r.PeakAnonMiB, r.Runs)
	}))
}
