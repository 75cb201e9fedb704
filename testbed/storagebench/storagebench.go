// Package storagebench downloads a torrent over TCP on loopback into each backend of braid, and into those that come with
// the BitTorrent engine, to compare what whole downloads cost. Everything but the backend is the same: the client, the
// engine, the seeder. Each download is a process of its own (Leech), so that its CPU time and memory are known.
package storagebench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	engine "github.com/anacrolix/torrent/storage"

	"braid/client"
	"braid/storage"
	"braid/testbed"
)

// Kinds are the backends, in the order of the table. Those of the engine begin with "engine-".
var Kinds = []string{"file", "mmap", "bolt", "engine-file", "engine-mmap", "engine-bolt"}

// Config of a comparison.
type Config struct {
	// Leech is the command of a download; it calls [Leech].
	Leech []string
	// Dir is for the data, which is there twice at a time. It is made and removed by the caller.
	Dir string
	// Sizes of the torrents in bytes, one after the other; backends take turns within each.
	Sizes []int64
	Runs  int      // downloads of each
	Only  []string // of Kinds; empty: all
	// Progress is told what is going on; may be nil.
	Progress func(string)
}

// Row is a backend's result: the medians of its runs.
type Row struct {
	Storage string  `json:"storage"`
	Bytes   int64   `json:"bytes"`
	MBs     float64 `json:"mb_s"`     // 10^6 bytes a second, from the start until all of it is verified and synced
	Least   float64 `json:"mb_s_min"` // of the runs
	Most    float64 `json:"mb_s_max"`
	storage.Usage
	Runs int `json:"runs"`
}

// job is what a download is told on its standard input.
type job struct {
	Storage, Torrent, Dir, Peer string
}

type result struct {
	Seconds float64 `json:"seconds"`
	storage.Usage
}

// Run makes the torrents and downloads them. Every download is compared with the data.
func Run(ctx context.Context, cfg Config, each func(Row)) error {
	kinds := cfg.Only
	if len(kinds) == 0 {
		kinds = Kinds
	}
	for _, k := range kinds {
		if !slices.Contains(Kinds, k) {
			return fmt.Errorf("storage %q: want %s", k, strings.Join(Kinds, ", "))
		}
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string) {}
	}
	for _, size := range cfg.Sizes {
		if err := compare(ctx, cfg, kinds, size, each); err != nil {
			return err
		}
	}
	return nil
}

func compare(ctx context.Context, cfg Config, kinds []string, size int64, each func(Row)) (err error) {
	dir, err := os.MkdirTemp(cfg.Dir, "size-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg.Progress(fmt.Sprintf("making a torrent of %d MB", size/1e6))
	data := filepath.Join(dir, "data")
	torrent, err := makeTorrent(ctx, dir, data, size)
	if err != nil {
		return err
	}
	peer, stop, err := seed(ctx, torrent, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	results := map[string][]result{}
	for run := range cfg.Runs {
		for _, kind := range kinds {
			cfg.Progress(fmt.Sprintf("%d MB into %s, run %d of %d", size/1e6, kind, run+1, cfg.Runs))
			r, err := leech(ctx, cfg.Leech, job{Storage: kind, Torrent: torrent, Dir: filepath.Join(dir, "out"), Peer: peer})
			if err != nil {
				return fmt.Errorf("download into %s: %w", kind, err)
			}
			results[kind] = append(results[kind], r)
		}
	}
	for _, kind := range kinds {
		each(sumUp(kind, size, results[kind]))
	}
	return nil
}

func makeTorrent(ctx context.Context, dir, data string, size int64) (name string, err error) {
	if err := testbed.RandomFile(data, [32]byte{7}, size); err != nil {
		return "", err
	}
	c, err := client.Create(ctx, data, client.CreateOptions{})
	if err != nil {
		return "", err
	}
	name = filepath.Join(dir, "data.torrent")
	return name, os.WriteFile(name, c.Torrent, 0o644)
}

// seed serves the data in this process.
func seed(ctx context.Context, torrent, dir string) (peer string, stop func() error, err error) {
	src, err := client.OpenSource(ctx, torrent)
	if err != nil {
		return "", nil, err
	}
	listen, err := client.ParseListen("127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s, err := client.New(ctx, client.Config{Listen: []client.Peer{listen}})
	if err != nil {
		return "", nil, err
	}
	store := storage.OpenVerified(dir, slog.New(slog.DiscardHandler))
	stop = func() error { return errors.Join(s.Close(), store.Close()) }
	if _, err := s.Add(src, store, client.Options{}); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return s.Listening()[0].String(), stop, nil
}

func leech(ctx context.Context, command []string, j job) (r result, err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(j.Dir)) }()
	in, err := json.Marshal(j)
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var problems bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &problems
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%w: %s", err, strings.TrimSpace(problems.String()))
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("read what the download says: %w", err)
	}
	return r, nil
}

func sumUp(kind string, size int64, results []result) Row {
	median := func(of func(result) float64) float64 {
		var x []float64
		for _, r := range results {
			x = append(x, of(r))
		}
		slices.Sort(x)
		return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
	}
	rate := func(r result) float64 { return float64(size) / 1e6 / r.Seconds }
	row := Row{Storage: kind, Bytes: size, MBs: median(rate), Runs: len(results)}
	row.Least, row.Most = row.MBs, row.MBs
	for _, r := range results {
		row.Least, row.Most = min(row.Least, rate(r)), max(row.Most, rate(r))
	}
	row.CPUPerGB = median(func(r result) float64 { return r.CPUPerGB })
	row.AllocBytes = uint64(median(func(r result) float64 { return float64(r.AllocBytes) }))
	row.PeakAnonMiB = median(func(r result) float64 { return r.PeakAnonMiB })
	return row
}

// Leech is one download: the work of a process of its own. It reads a job from in and writes the result to out.
func Leech(ctx context.Context, in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("read the job (this is started by 'braid bench storage', not by hand): %w", err)
	}
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
	meter, start := storage.StartMeter(), time.Now()
	if err := download(ctx, src, peer, j); err != nil {
		return err
	}
	r := result{Seconds: time.Since(start).Seconds(), Usage: meter.Stop(src.Layout.Length)}
	// The session knows that every piece is right. Whether they are all where they should be, only a look can tell.
	if err := compareData(ctx, src, j); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
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
	kind, err := storage.ParseKind(j.Storage)
	if err != nil {
		return nil, err
	}
	return storage.Open(kind, j.Dir, slog.New(slog.DiscardHandler))
}

// compareData checks what a download has left. Of the engine's bolt, which nothing else can read, only the session's word
// is there.
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
