package storagebench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/anacrolix/torrent/metainfo"
	"golang.org/x/sync/errgroup"

	"braid/storage"
	"braid/testbed/bench"
)

// Case is one measurement of a backend without a download.
type Case struct {
	// Storage is a storage.Kind, or "limit": pwrite and pread into one file, without anything else.
	Storage     string `json:"storage"`
	Order       string `json:"order"` // of the pieces: "sequential" or "random"
	PieceLength int64  `json:"piece_length"`
	Bytes       int64  `json:"bytes"` // a multiple of PieceLength
}

// String is for messages.
func (c Case) String() string {
	return fmt.Sprintf("%s %s %d KiB", c.Storage, c.Order, c.PieceLength>>10)
}

// Result is the result of a case. The time of writing includes a sync at the end.
type Result struct {
	Case
	WriteMBs float64 `json:"write_mb_s"` // 10^6 bytes a second
	ReadMBs  float64 `json:"read_mb_s"`
	Usage            // of writing and reading
}

// Cases returns all cases. A case has only whole pieces: at least one, and otherwise no more than
// fit into the given number of bytes. Cases to be compared are next to each other.
func Cases(bytes int64) (out []Case) {
	for _, piece := range []int64{256 << 10, 1 << 20, 4 << 20, 16 << 20} {
		for _, order := range []string{"sequential", "random"} {
			for _, kind := range []string{"limit", "file", "mmap", "bolt"} {
				out = append(out, Case{kind, order, piece, max(1, bytes/piece) * piece})
			}
		}
	}
	return out
}

// Comparison measures each case once in every run, in a directory below Dir.
type Comparison struct {
	Cases    []Case
	Runs     int
	Dir      string
	Progress func(string)
}

// Run calls emit with the medians of each case. If a case fails or ctx ends, emit gets the results
// that are there.
func (c Comparison) Run(ctx context.Context, emit func(Result)) error {
	return bench.Turns(ctx, c.Runs, len(c.Cases), func(run, i int) (Result, error) {
		if i == 0 {
			c.Progress(fmt.Sprintf("run %d of %d: %d cases of %d MiB",
				run+1, c.Runs, len(c.Cases), c.Cases[0].Bytes>>20))
		}
		r, err := Measure(ctx, c.Cases[i], c.Dir)
		if err != nil {
			err = fmt.Errorf("measure %s: %w", c.Cases[i], err)
		}
		return r, err
	}, func(_ int, runs []Result) { emit(medianOf(runs)) })
}

// medianOf is the result of several runs of a case: the median of each figure.
func medianOf(runs []Result) Result {
	return Result{
		Case:     runs[0].Case,
		WriteMBs: bench.Median(runs, func(r Result) float64 { return r.WriteMBs }),
		ReadMBs:  bench.Median(runs, func(r Result) float64 { return r.ReadMBs }),
		Usage:    medianUsage(runs, func(r Result) Usage { return r.Usage }),
	}
}

// Measure writes and reads a torrent below dir, block by block, with the same calls as the engine,
// but without hashing.
func Measure(ctx context.Context, c Case, dir string) (r Result, err error) {
	dir, err = os.MkdirTemp(dir, "braid-bench-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	pieces := int(c.Bytes / c.PieceLength)
	m, err := c.open(ctx, dir, pieces)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	b := make([]byte, block)
	for i := range b {
		b[i] = byte(i * 7)
	}
	write := func(piece readWriterAt, off int64) (int, error) { return piece.WriteAt(b, off) }
	read := func(piece readWriterAt, off int64) (int, error) { return piece.ReadAt(b, off) }
	meter, start := startMeter(), time.Now()
	if err = c.each(ctx, m, pieces, write, m.done); err == nil {
		err = m.sync()
	}
	written := time.Now()
	if err == nil {
		err = c.each(ctx, m, pieces, read, func(int) error { return nil })
	}
	end := time.Now()
	rate := func(d time.Duration) float64 { return float64(c.Bytes) / 1e6 / d.Seconds() }
	return Result{
		Case: c, WriteMBs: rate(written.Sub(start)), ReadMBs: rate(end.Sub(written)),
		Usage: meter.stop(c.Bytes),
	}, err
}

const block = 16 << 10

// each calls do for each block of all pieces in the case's order, and done after each piece.
func (c Case) each(
	ctx context.Context, m medium, pieces int,
	do func(piece readWriterAt, off int64) (int, error), done func(piece int) error,
) error {
	order := make([]int, pieces)
	for i := range order {
		order[i] = i
	}
	if c.Order == "random" {
		order = rand.New(rand.NewPCG(1, 2)).Perm(pieces)
	}
	for _, index := range order {
		piece := m.at(index)
		for off := int64(0); off < c.PieceLength; off += block {
			if _, err := do(piece, off); err != nil {
				return err
			}
		}
		if err := errors.Join(done(index), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// medium is a backend, or plain pwrite and pread.
type medium struct {
	at          func(piece int) readWriterAt
	done        func(piece int) error // all of the piece is written
	sync, close func() error
}

type readWriterAt interface {
	io.ReaderAt
	io.WriterAt
}

func (c Case) open(ctx context.Context, dir string, pieces int) (medium, error) {
	if c.Storage == "limit" {
		return openPlain(filepath.Join(dir, "plain"), c.PieceLength)
	}
	info := &metainfo.Info{
		Name: "bench", PieceLength: c.PieceLength, Length: c.Bytes,
		Pieces: make([]byte, 20*pieces),
	}
	return openBackend(ctx, storage.Kind(c.Storage), dir, info)
}

// openPlain opens the limit.
func openPlain(name string, pieceLength int64) (medium, error) {
	f, err := os.Create(name)
	return medium{
		at: func(p int) readWriterAt {
			from := int64(p) * pieceLength
			return struct {
				io.ReaderAt
				io.WriterAt
			}{io.NewSectionReader(f, from, pieceLength), io.NewOffsetWriter(f, from)}
		},
		done: func(int) error { return nil }, sync: f.Sync, close: f.Close,
	}, err
}

// openBackend opens one of braid's backends.
func openBackend(
	ctx context.Context, kind storage.Kind, dir string, info *metainfo.Info,
) (medium, error) {
	s, err := storage.Open(kind, dir, slog.New(slog.DiscardHandler), storage.Options{})
	if err != nil {
		return medium{}, err
	}
	hash := metainfo.Hash{1}
	t, err := s.OpenTorrent(ctx, info, hash)
	if err != nil {
		return medium{}, errors.Join(err, s.Close())
	}
	var checks errgroup.Group // of pieces that are written, hashing excluded
	checks.SetLimit(2)        // as many as the engine has for a torrent
	return medium{
		at: func(p int) readWriterAt { return t.Piece(info.Piece(p)) },
		// The next piece begins while this one is written, as with the engine.
		done: func(p int) error {
			checks.Go(func() error {
				piece := t.Piece(info.Piece(p))
				if _, err := piece.ReadAt(make([]byte, 1), 0); err != nil { // waits for all blocks
					return err
				}
				return piece.MarkComplete()
			})
			return nil
		},
		sync: func() error {
			if err := checks.Wait(); err != nil {
				return err
			}
			_, err := storage.SyncAndCheck(s, hash)
			return err
		},
		close: func() error { return errors.Join(t.Close(), s.Close()) },
	}, nil
}
