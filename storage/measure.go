//go:build unix

package storage

import (
	"context"
	"errors"
	"fmt"
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
	each := func(do func(piece int, off int64) error, after func(piece int) error) error {
		for _, p := range order {
			for off := int64(0); off < c.PieceLength; off += benchBlock {
				if err := do(p, off); err != nil {
					return err
				}
			}
			if err := errors.Join(after(p), ctx.Err()); err != nil {
				return err
			}
		}
		return nil
	}
	if err = each(func(p int, off int64) error { return m.write(p, b, off) }, m.done); err == nil {
		err = m.sync()
	}
	written := time.Since(start)
	start = time.Now()
	if err == nil {
		err = each(func(p int, off int64) error { return m.read(p, b, off) }, func(int) error { return nil })
	}
	read := time.Since(start)
	r.Usage = meter.Stop(c.Bytes)
	r.WriteMBs = float64(c.Bytes) / 1e6 / written.Seconds()
	r.ReadMBs = float64(c.Bytes) / 1e6 / read.Seconds()
	return r, errors.Join(err, m.close())
}

// medium is what is measured.
type medium interface {
	write(piece int, b []byte, off int64) error
	done(piece int) error
	sync() error
	read(piece int, b []byte, off int64) error
	close() error
}

// plain is the limit.
type plain struct {
	f     *os.File
	piece int64
}

func newPlain(name string, pieceLength int64) (*plain, error) {
	f, err := os.Create(name)
	return &plain{f, pieceLength}, err
}

func (p *plain) at(piece int, off int64) int64 { return int64(piece)*p.piece + off }
func (p *plain) write(piece int, b []byte, off int64) error {
	_, err := p.f.WriteAt(b, p.at(piece, off))
	return err
}
func (p *plain) done(int) error { return nil }
func (p *plain) sync() error    { return p.f.Sync() }
func (p *plain) read(piece int, b []byte, off int64) error {
	_, err := p.f.ReadAt(b, p.at(piece, off))
	return err
}
func (p *plain) close() error { return p.f.Close() }

// backed is a backend.
type backed struct {
	store  Store
	t      *torrent
	piece  int64
	checks errgroup.Group // of pieces that are written, hashing excluded
}

func newBacked(ctx context.Context, kind Kind, dir string, c BenchCase) (*backed, error) {
	info := &metainfo.Info{Name: "bench", PieceLength: c.PieceLength, Length: c.Bytes,
		Pieces: make([]byte, 20*(c.Bytes/c.PieceLength))}
	l, err := NewLayout(info)
	if err != nil {
		return nil, err
	}
	s, err := Open(kind, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	t, err := s.(*store).openData(ctx, l, metainfo.Hash{1})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	m := &backed{store: s, t: t, piece: c.PieceLength}
	m.checks.SetLimit(2) // as many as the engine has for a torrent
	return m, nil
}

func (m *backed) at(p int) piece { return piece{m.t, p, int64(p) * m.piece} }
func (m *backed) write(p int, b []byte, off int64) error {
	_, err := m.at(p).WriteAt(b, off)
	return err
}

// done lets the next piece begin while this one is written and checked, as the engine does.
func (m *backed) done(p int) error {
	m.checks.Go(func() error {
		if err := m.t.writer.flushPiece(p); err != nil {
			return err
		}
		return m.at(p).MarkComplete()
	})
	return nil
}

func (m *backed) sync() error { return errors.Join(m.checks.Wait(), m.t.sync()) }
func (m *backed) read(p int, b []byte, off int64) error {
	_, err := m.at(p).ReadAt(b, off)
	return err
}
func (m *backed) close() error { return errors.Join(m.t.close(), m.store.Close()) }

// String is for tables.
func (c BenchCase) String() string {
	return fmt.Sprintf("%s %s %d KiB", c.Storage, c.Order, c.PieceLength>>10)
}
