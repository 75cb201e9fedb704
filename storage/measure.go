//go:build unix

package storage

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
)

// BenchCase is one measurement.
type BenchCase struct {
	Storage     string `json:"storage"` // a Kind, or "limit": pwrite and pread into one file, without anything else
	Order       string `json:"order"`   // of the pieces: "sequential" or "random"
	PieceLength int64  `json:"piece_length"`
	Bytes       int64  `json:"bytes"`
}

// BenchResult is the result of a case. The time of writing includes a sync at the end.
type BenchResult struct {
	BenchCase
	WriteMBs float64 `json:"write_mb_s"` // 10^6 bytes a second
	ReadMBs  float64 `json:"read_mb_s"`
	Usage            // of writing and reading
}

// BenchCases returns all cases, with that many bytes each. Cases to be compared are next to each
// other.
func BenchCases(bytes int64) (out []BenchCase) {
	for _, piece := range []int64{256 << 10, 1 << 20, 4 << 20, 16 << 20} {
		for _, order := range []string{"sequential", "random"} {
			for _, kind := range []string{"limit", string(KindFile), string(KindMmap), string(KindBolt)} {
				out = append(out, BenchCase{kind, order, piece, max(bytes, piece)})
			}
		}
	}
	return out
}

const benchBlock = 16 << 10

// Measure writes and reads a torrent below dir, block by block, with the same calls as the engine,
// but without hashing.
func Measure(ctx context.Context, c BenchCase, dir string) (r BenchResult, err error) {
	dir, err = os.MkdirTemp(dir, "braid-bench-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r.BenchCase = c
	pieces := int(c.Bytes / c.PieceLength)
	c.Bytes = int64(pieces) * c.PieceLength
	order := make([]int, pieces)
	for i := range order {
		order[i] = i
	}
	if c.Order == "random" {
		rand.New(rand.NewPCG(1, 2)).Shuffle(pieces, func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	var m medium
	if c.Storage == "limit" {
		m, err = newPlain(filepath.Join(dir, "plain"), c.PieceLength)
	} else {
		m, err = newBacked(ctx, Kind(c.Storage), dir, c)
	}
	if err != nil {
		return r, err
	}
	meter := StartMeter()
	start := time.Now()
	b := make([]byte, benchBlock)
	for i := range b {
		b[i] = byte(i * 7)
	}
	each := func(do func(piece readWriterAt, off int64) (int, error), after func(piece int) error) error {
		for _, p := range order {
			piece := m.at(p)
			for off := int64(0); off < c.PieceLength; off += benchBlock {
				if _, err := do(piece, off); err != nil {
					return err
				}
			}
			if err := errors.Join(after(p), ctx.Err()); err != nil {
				return err
			}
		}
		return nil
	}
	write := func(p readWriterAt, off int64) (int, error) { return p.WriteAt(b, off) }
	if err = each(write, m.done); err == nil {
		err = m.sync()
	}
	written := time.Since(start)
	start = time.Now()
	if err == nil {
		read := func(p readWriterAt, off int64) (int, error) { return p.ReadAt(b, off) }
		err = each(read, func(int) error { return nil })
	}
	read := time.Since(start)
	r.Usage = meter.Stop(c.Bytes)
	r.WriteMBs = float64(c.Bytes) / 1e6 / written.Seconds()
	r.ReadMBs = float64(c.Bytes) / 1e6 / read.Seconds()
	return r, errors.Join(err, m.close())
}

// medium is what is measured.
type medium struct {
	at          func(piece int) readWriterAt
	done        func(piece int) error // all of the piece is written
	sync, close func() error
}

type readWriterAt interface {
	io.ReaderAt
	io.WriterAt
}

// section is a part of a file.
type section struct {
	*os.File
	from int64
}

func (s section) ReadAt(b []byte, off int64) (int, error)  { return s.File.ReadAt(b, s.from+off) }
func (s section) WriteAt(b []byte, off int64) (int, error) { return s.File.WriteAt(b, s.from+off) }

// newPlain is the limit.
func newPlain(name string, pieceLength int64) (m medium, err error) {
	f, err := os.Create(name)
	return medium{
		at:   func(p int) readWriterAt { return section{f, int64(p) * pieceLength} },
		done: func(int) error { return nil }, sync: f.Sync, close: f.Close,
	}, err
}

// newBacked is a backend.
func newBacked(ctx context.Context, kind Kind, dir string, c BenchCase) (m medium, err error) {
	info := &metainfo.Info{Name: "bench", PieceLength: c.PieceLength, Length: c.Bytes,
		Pieces: make([]byte, 20*(c.Bytes/c.PieceLength))}
	l, err := NewLayout(info)
	if err != nil {
		return m, err
	}
	s, err := Open(kind, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return m, err
	}
	t, err := s.(*store).openData(ctx, l, metainfo.Hash{1})
	if err != nil {
		return m, errors.Join(err, s.Close())
	}
	at := func(p int) piece { return piece{t, p, int64(p) * c.PieceLength} }
	var checks errgroup.Group // of pieces that are written, hashing excluded
	checks.SetLimit(2)        // as many as the engine has for a torrent
	return medium{
		at: func(p int) readWriterAt { return at(p) },
		done: func(p int) error { // the next piece begins while this one is written, as with the engine
			checks.Go(func() error {
				if err := t.writer.flushPiece(p); err != nil {
					return err
				}
				return at(p).MarkComplete()
			})
			return nil
		},
		sync:  func() error { return errors.Join(checks.Wait(), t.sync()) },
		close: func() error { return errors.Join(t.close(), s.Close()) },
	}, nil
}

// String is for tables.
func (c BenchCase) String() string {
	return fmt.Sprintf("%s %s %d KiB", c.Storage, c.Order, c.PieceLength>>10)
}
