// Package storagebench compares storage backends.
//
// [Measure] writes and reads pieces with one of braid's backends, next to plain pwrite and pread.
//
// [Run] compares what whole downloads cost with each backend: those of braid, and those that come
// with the BitTorrent engine. It downloads a torrent over TCP on loopback; client, engine and
// seeder are always the same. Each download is a process of its own (Leech), so that its CPU time
// and memory are known.
package storagebench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	engine "github.com/anacrolix/torrent/storage"

	"braid/client"
	"braid/storage"
	"braid/testbed/bench"
)

// Kinds are the backends, in the order of the table. Those of the engine begin with "engine-".
var Kinds = []string{"file", "mmap", "bolt", "engine-file", "engine-mmap", "engine-bolt"}

// Config of a comparison.
type Config struct {
	// Braid is the program that seeds. Leech is the command of a download; it calls [Leech].
	Braid string
	Leech []string
	// Dir must have room for the data twice. The caller makes and removes it.
	Dir string
	// Sizes of the torrents in bytes, one after the other; backends take turns within each.
	Sizes []int64
	Runs  int      // downloads of each
	Kinds []string // some of Kinds, or all of them
	// Progress is called with what happens next.
	Progress func(string)
}

// Row is a backend's result: the medians of its runs.
type Row struct {
	Storage string  `json:"storage"`
	Bytes   int64   `json:"bytes"`
	MBs     float64 `json:"mb_s"`     // 10^6 bytes a second, from the start until all of it is verified and synced
	Least   float64 `json:"mb_s_min"` // of the runs
	Most    float64 `json:"mb_s_max"`
	Usage
	Runs int `json:"runs"`
}

// job tells a download what to fetch, from whom and where to.
type job struct {
	Storage, Torrent, Dir, Peer string
}

type result struct {
	Seconds float64 `json:"seconds"`
	Usage
}

// Run makes the torrents and downloads them. Every download is compared with the data. If a download
// fails or ctx ends, emit gets the results that are there.
func Run(ctx context.Context, cfg Config, emit func(Row)) error {
	for _, size := range cfg.Sizes {
		if err := compare(ctx, cfg, size, emit); err != nil {
			return err
		}
	}
	return nil
}

func compare(ctx context.Context, cfg Config, size int64, emit func(Row)) (err error) {
	cfg.Progress(fmt.Sprintf("making a torrent of %d MB", size/1e6))
	payload, err := bench.MakePayload(ctx, cfg.Dir, size, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(payload.Dir)) }()
	seeder, peer, err := payload.Seed(ctx, cfg.Braid, "--listen", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer seeder.Stop()
	return bench.Turns(ctx, cfg.Runs, len(cfg.Kinds), func(run, i int) (r result, err error) {
		kind := cfg.Kinds[i]
		cfg.Progress(fmt.Sprintf("%d MB into %s, run %d of %d", size/1e6, kind, run+1, cfg.Runs))
		j := job{kind, payload.Torrent, filepath.Join(payload.Dir, "out"), peer}
		err = bench.Call(ctx, bench.AnyCore, j, &r, cfg.Leech...)
		if err = errors.Join(err, os.RemoveAll(j.Dir)); err != nil {
			return r, fmt.Errorf("download into %s: %w", kind, err)
		}
		return r, nil
	}, func(i int, results []result) { emit(summary(cfg.Kinds[i], size, results)) })
}

func summary(kind string, size int64, results []result) Row {
	rate := func(r result) float64 { return float64(size) / 1e6 / r.Seconds }
	extent := bench.Range(results, rate)
	return Row{
		Storage: kind, Bytes: size, Runs: len(results),
		MBs: bench.Median(results, rate), Least: extent[0], Most: extent[1],
		Usage: medianUsage(results, func(r result) Usage { return r.Usage }),
	}
}

// Leech is one download. It runs in a process of its own; see [bench.Work].
func Leech(ctx context.Context, j job, tell func(any) error) error {
	src, err := client.OpenSource(ctx, j.Torrent)
	if err != nil {
		return err
	}
	peer, err := client.ParsePeer(j.Peer)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(j.Dir, 0o755); err != nil {
		return err
	}
	meter, start := startMeter(), time.Now()
	if err := download(ctx, src, peer, j); err != nil {
		return err
	}
	r := result{Seconds: time.Since(start).Seconds(), Usage: meter.stop(src.Layout.Length)}
	// The session has verified every piece, but not that a backend has kept each in its place.
	if err := compareData(ctx, src, j); err != nil {
		return err
	}
	return tell(r)
}

func download(ctx context.Context, src client.Source, peer client.Peer, j job) (err error) {
	store, err := open(j)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	s, err := client.New(ctx, client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	t, err := s.Add(src, store, client.Options{Peers: []client.Peer{peer}})
	if err != nil {
		return err
	}
	select {
	case <-t.Done():
		return t.Progress().Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func open(j job) (storage.Store, error) {
	switch j.Storage {
	case "engine-file":
		return engine.NewFile(j.Dir), nil
	case "engine-mmap":
		return engine.NewMMap(j.Dir), nil
	case "engine-bolt":
		return engine.NewBoltDB(j.Dir), nil
	}
	return storage.Open(storage.Kind(j.Storage), j.Dir, slog.New(slog.DiscardHandler), storage.Options{})
}

// compareData checks the data that a download has left. It cannot check the engine's bolt backend,
// which nothing else reads.
func compareData(ctx context.Context, src client.Source, j job) error {
	kind := storage.Kind(strings.TrimPrefix(j.Storage, "engine-"))
	if j.Storage == "engine-bolt" {
		return nil
	}
	r, err := storage.Stored{Kind: kind, Dir: j.Dir, Hash: src.InfoHash, Layout: src.Layout}.Check(ctx, nil)
	if err == nil && !r.Complete() {
		err = fmt.Errorf("%s has left wrong data", j.Storage)
	}
	return err
}
