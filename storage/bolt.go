package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/anacrolix/torrent/metainfo"
	"go.etcd.io/bbolt"

	"braid/storage/boltdb"
)

// How pieces get into a bbolt database without paying for each block:
//
//  1. A block is put into memory, into its segment of 256 KiB.
//  2. Segments go to the database in one transaction for many pieces: the pieces that are whole when there are enough of
//     them, all that is whole at a sync, and whatever is there when memory runs short.
//  3. A block is read from memory, or else from the database.
//
// The database has a bucket for each piece, named by its number in four bytes, with its segments by number in two. A piece
// comes into a bucket of its own, because bbolt rewrites all values that share a page with a new one: in one large
// bucket each piece would be written several times. Segments keep a page's run short enough to find room for it again,
// and let a part of a piece be written.
const (
	segmentSize = 256 << 10
	// enough is the size of a transaction. Each costs two syncs of the disk, which are small change at this size.
	enough = 8 << 20
	// mostBuffered bounds the memory of all segments that are not written. A transaction needs as much again at most.
	mostBuffered = 24 << 20
)

var piecesBucket = []byte("pieces")

// boltPath is where a torrent's database lies below the data directory, with slashes.
func boltPath(hash metainfo.Hash) string { return recordDir + "/" + hash.HexString() + ".pieces.db" }

func boltOptions() *bbolt.Options {
	return &bbolt.Options{Timeout: lockWait, InitialMmapSize: 1 << 30} // of addresses, not of memory; it grows in steps of as much
}

// bolt is a place for a torrent in a database of its own.
type bolt struct {
	layout Layout
	name   string // of the file
	system system
	db     *boltdb.DB
	fresh  bool // there was no database, or a damaged one

	flushing sync.Mutex   // segments on their way to the database are not written to
	landing  sync.RWMutex // a reader does not look at memory before, and at the database before that

	mu      sync.Mutex
	pieces  map[int]*buffered
	size    int // of all segments in memory
	whole   int // of those of whole pieces
	changed bool
	left    stamp     // as we have found the file, or left it
	free    sync.Pool // of *[]byte, each a segment
}

// buffered is what of a piece is in memory.
type buffered struct {
	segments map[int]*segment
	bytes    int64 // that are known
}

// segment is a part of a piece in memory.
type segment struct {
	data *[]byte
	// known are the ranges of it that were written, in order and apart from each other. The rest may be in the database.
	known extents
}

func openBoltPlace(dir string, l Layout, hash metainfo.Hash, sys system, log *slog.Logger) (*bolt, error) {
	name := filepath.Join(dir, filepath.FromSlash(boltPath(hash)))
	_, err := os.Lstat(name)
	fresh := errors.Is(err, fs.ErrNotExist)
	db, err := boltdb.Open(name, 0o644, boltOptions(), func(aside string, err error) {
		fresh = true
		log.Warn("the pieces in a damaged database are lost; they are fetched again", "torrent", l.Name, "set_aside", aside, "error", err)
	})
	if err != nil {
		return nil, err
	}
	left, err := stampOfFile(name)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &bolt{
		layout: l, name: name, system: sys, db: db, fresh: fresh, pieces: map[int]*buffered{}, left: left,
		free: sync.Pool{New: func() any { b := make([]byte, segmentSize); return &b }},
	}, nil
}

// expect looks whether the file is as we left it. If not, bbolt may meet anything in it.
func (p *bolt) expect() error {
	now, err := stampOfFile(p.name)
	if err != nil {
		return fmt.Errorf("%w; start again to fetch what it held", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now != p.left {
		return fmt.Errorf("%s was changed by somebody else; start again to fetch what it held", p.name)
	}
	return nil
}

// note remembers how the file is left.
func (p *bolt) note() error {
	left, err := stampOfFile(p.name)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = left
	return err
}

func (p *bolt) stamp(int) stamp {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

// openBoltReader opens a database for reading only.
func openBoltReader(dir string, l Layout, hash metainfo.Hash) (*bolt, error) {
	name := filepath.Join(dir, filepath.FromSlash(boltPath(hash)))
	opts := boltOptions()
	opts.ReadOnly = true
	db, err := boltdb.Open(name, 0, opts, nil)
	if err != nil {
		return nil, err
	}
	return &bolt{layout: l, name: name, db: db, pieces: map[int]*buffered{}}, nil
}

// span calls do for each segment that has a part of the n bytes of the torrent's data from off on.
func (p *bolt) span(off int64, n int, do func(piece, seg, at int, from, to int) error) error {
	for from := 0; from < n; {
		index := int((off + int64(from)) / p.layout.PieceLength)
		within := off + int64(from) - int64(index)*p.layout.PieceLength
		seg, at := int(within/segmentSize), int(within%segmentSize)
		to := min(n, from+p.segmentLength(index, seg)-at)
		if err := do(index, seg, at, from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

func (p *bolt) segmentLength(piece, seg int) int {
	_, length := p.layout.PieceRange(piece)
	return int(min(segmentSize, length-int64(seg)*segmentSize))
}

func (p *bolt) write(b []byte, off int64) error {
	if err := p.put(b, off); err != nil {
		return err
	}
	p.mu.Lock()
	size, whole := p.size, p.whole
	p.mu.Unlock()
	switch {
	case whole >= enough:
		return p.flush(false)
	case size >= mostBuffered:
		return p.flush(true)
	}
	return nil
}

func (p *bolt) put(b []byte, off int64) error {
	p.flushing.Lock()
	defer p.flushing.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.span(off, len(b), func(piece, seg, at, from, to int) error {
		in := p.pieces[piece]
		if in == nil {
			in = &buffered{segments: map[int]*segment{}}
			p.pieces[piece] = in
		}
		s := in.segments[seg]
		if s == nil {
			s = &segment{data: p.free.Get().(*[]byte)}
			in.segments[seg] = s
			p.size += segmentSize
		}
		copy((*s.data)[at:], b[from:to])
		wasWhole := p.isWhole(piece, in)
		var grown int
		s.known, grown = s.known.with(at, at+to-from)
		in.bytes += int64(grown)
		if p.isWhole(piece, in) && !wasWhole {
			p.whole += len(in.segments) * segmentSize
		}
		return nil
	})
}

func (p *bolt) isWhole(piece int, in *buffered) bool {
	_, length := p.layout.PieceRange(piece)
	return in.bytes == length
}

func (p *bolt) read(b []byte, off int64) error {
	p.landing.RLock()
	defer p.landing.RUnlock()
	return p.span(off, len(b), func(piece, seg, at, from, to int) error {
		b := b[from:to]
		if p.readBuffered(b, piece, seg, at) {
			return nil
		}
		stored := false
		err := p.db.View(func(tx *bbolt.Tx) error {
			if v := storedSegment(tx, piece, seg); len(v) == p.segmentLength(piece, seg) {
				copy(b, v[at:])
				stored = true
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read piece %d: %w", piece, err)
		}
		if !p.readBuffered(b, piece, seg, at) && !stored { // what is in memory is newer
			return fmt.Errorf("piece %d is not in the database: %w", piece, io.ErrUnexpectedEOF)
		}
		return nil
	})
}

// readBuffered copies what of b is in memory, and tells whether that is all.
func (p *bolt) readBuffered(b []byte, piece, seg, at int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.pieces[piece]
	if in == nil || in.segments[seg] == nil {
		return false
	}
	s := in.segments[seg]
	for _, e := range s.known {
		if from, to := max(e.from, at), min(e.to, at+len(b)); from < to {
			copy(b[from-at:to-at], (*s.data)[from:to])
		}
	}
	return s.known.holds(at, at+len(b))
}

// storedSegment is valid until the transaction ends.
func storedSegment(tx *bbolt.Tx, piece, seg int) []byte {
	all := tx.Bucket(piecesBucket)
	if all == nil {
		return nil
	}
	b := all.Bucket(pieceKey(piece))
	if b == nil {
		return nil
	}
	return b.Get(segmentKey(seg))
}

func pieceKey(piece int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(piece)) }
func segmentKey(seg int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(seg)) }

// flight is a segment on its way to the database.
type flight struct {
	piece, seg int
	s          *segment
}

// flush writes the pieces that are whole, or everything. While it does, what it writes stays readable in memory.
func (p *bolt) flush(all bool) error {
	p.flushing.Lock()
	defer p.flushing.Unlock()
	for {
		flights := p.depart(all)
		if len(flights) == 0 {
			return nil
		}
		err := p.expect()
		if err == nil {
			err = p.system.update(p.db, func(tx *bbolt.Tx) error { return p.store(tx, flights) })
			err = errors.Join(err, p.note())
		}
		if err != nil {
			return fmt.Errorf("write pieces of %s: %w", p.layout.Name, err)
		}
		p.land(flights)
	}
}

// depart takes as many segments as a transaction should have, in order.
func (p *bolt) depart(all bool) []flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []flight
	for _, piece := range slices.Sorted(maps.Keys(p.pieces)) {
		in := p.pieces[piece]
		if !all && !p.isWhole(piece, in) {
			continue
		}
		if len(out)*segmentSize >= enough {
			break
		}
		for _, seg := range slices.Sorted(maps.Keys(in.segments)) {
			out = append(out, flight{piece, seg, in.segments[seg]})
		}
	}
	return out
}

func (p *bolt) store(tx *bbolt.Tx, flights []flight) error {
	top, err := tx.CreateBucketIfNotExists(piecesBucket)
	if err != nil {
		return err
	}
	var b *bbolt.Bucket
	for i, f := range flights {
		if i == 0 || flights[i-1].piece != f.piece {
			if b, err = top.CreateBucketIfNotExists(pieceKey(f.piece)); err != nil {
				return err
			}
			b.FillPercent = 1 // nothing comes in between
		}
		data := (*f.s.data)[:p.segmentLength(f.piece, f.seg)]
		if !f.s.known.holds(0, len(data)) {
			data = merge(data, f.s.known, b.Get(segmentKey(f.seg)))
		}
		if err := b.Put(segmentKey(f.seg), data); err != nil {
			return err
		}
	}
	return nil
}

// merge puts what is known over what was stored, if anything was.
func merge(data []byte, known extents, stored []byte) []byte {
	out := make([]byte, len(data))
	copy(out, stored)
	for _, e := range known {
		copy(out[e.from:e.to], data[e.from:e.to])
	}
	return out
}

// land takes pieces out of memory that are in the database by now.
func (p *bolt) land(flights []flight) {
	p.landing.Lock()
	defer p.landing.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = true
	for _, f := range flights {
		if in := p.pieces[f.piece]; in != nil {
			if p.isWhole(f.piece, in) {
				p.whole -= len(in.segments) * segmentSize
			}
			p.size -= len(in.segments) * segmentSize
			delete(p.pieces, f.piece)
		}
		p.free.Put(f.s.data)
	}
}

func (p *bolt) mark(int, bool) error { return nil }

func (p *bolt) sync() ([]int, error) {
	if err := p.flush(true); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := p.changed
	p.changed = false
	if !changed {
		return nil, nil
	}
	return []int{0}, nil
}

func (p *bolt) gone() ([]int, error) { return nil, p.expect() }

func (p *bolt) close() error { return p.db.Close() }
