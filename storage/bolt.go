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

// How pieces get into a bbolt database without a transaction for each block:
//
//  1. Blocks are collected in memory, in segments of 256 KiB.
//  2. One transaction writes the segments of many pieces: those of whole pieces once there are
//     enough, and all segments at a sync and when memory runs short.
//  3. A block is read from memory, or else from the database.
//
// The database has a bucket for each piece, whose key is the piece's number in four bytes. In it
// the segments have their numbers in two bytes as keys. bbolt rewrites all values that share a page
// with a new one, so pieces in one large bucket would be written several times. Segments are short
// enough for the space of old ones to be used again, and a part of a piece can be written.
const (
	segmentSize = 256 << 10
	// enough is the size of a transaction. Each costs two syncs of the disk, which do not matter at
	// this size.
	enough = 8 << 20
	// mostBuffered bounds the memory of unwritten segments. A transaction needs at most as much
	// again.
	mostBuffered = 24 << 20
)

var piecesBucket = []byte("pieces")

// boltPath is the path of a torrent's database below the data directory, with slashes.
func boltPath(hash metainfo.Hash) string { return recordDir + "/" + hash.HexString() + ".pieces.db" }

func boltOptions() *bbolt.Options {
	const mapped = 1 << 30 // bytes of addresses, not of memory; it grows in steps of as much
	return &bbolt.Options{Timeout: lockWait, InitialMmapSize: mapped}
}

// bolt is a place for one torrent in its own database.
type bolt struct {
	layout Layout
	name   string // of the file
	system system
	db     *boltdb.DB
	fresh  bool // the database is new

	// flushing holds a value while segments are written to the database, so that they do not change.
	// It is no mutex, since testing/synctest does not move time while somebody waits for a mutex.
	flushing chan struct{}
	landing  sync.RWMutex // keeps segments from moving from memory to the database while somebody reads

	mu        sync.Mutex
	pieces    map[int]*buffered
	size      int // of all segments in memory
	whole     int // of the segments of whole pieces
	changed   bool
	lastStamp stamp     // of the file, as we have found or left it
	free      sync.Pool // of *[]byte, each a segment
}

// buffered is the part of a piece that is in memory.
type buffered struct {
	segments map[int]*segment
	bytes    int64 // that were written
}

// segment is a part of a piece in memory.
type segment struct {
	data *[]byte
	// written are the ranges that were written. The rest of the segment may be in the database.
	written extents
}

func openBoltPlace(dir string, l Layout, hash metainfo.Hash, sys system, log *slog.Logger) (*bolt, error) {
	name := filepath.Join(dir, filepath.FromSlash(boltPath(hash)))
	_, err := os.Lstat(name)
	fresh := errors.Is(err, fs.ErrNotExist)
	db, err := boltdb.Open(name, 0o644, boltOptions(), func(aside string, err error) {
		fresh = true
		log.Warn("the database of pieces is damaged; its pieces are fetched again",
			"torrent", l.Name, "set_aside", aside, "error", err)
	})
	if err != nil {
		return nil, err
	}
	last, err := stampOfFile(name)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &bolt{
		layout: l, name: name, system: sys, db: db, fresh: fresh, pieces: map[int]*buffered{}, lastStamp: last,
		flushing: make(chan struct{}, 1),
		free:     sync.Pool{New: func() any { b := make([]byte, segmentSize); return &b }},
	}, nil
}

// expect checks that the file is as we left it, since bbolt cannot cope with a file that has
// changed.
func (p *bolt) expect() error {
	now, err := p.look()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now != p.lastStamp {
		return fmt.Errorf("%s was changed by somebody else; start again to fetch what it held", p.name)
	}
	return nil
}

// note remembers the file's stamp after a transaction.
func (p *bolt) note() error {
	last, err := p.look()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastStamp = last
	return err
}

func (p *bolt) look() (stamp, error) {
	s, err := stampOfFile(p.name)
	if err != nil {
		return s, fmt.Errorf("%w; start again to fetch what it held", err)
	}
	return s, nil
}

func (p *bolt) stamp(int) stamp {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastStamp
}

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

// span calls do for each segment that holds some of the n bytes of the torrent's data at off: bytes
// from to to of them are in the segment, from its byte at.
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
	p.flushing <- struct{}{}
	defer func() { <-p.flushing }()
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
		s.written, grown = s.written.with(at, at+to-from)
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
		if !p.readBuffered(b, piece, seg, at) && !stored { // memory is newer than the database
			return fmt.Errorf("piece %d is not in the database: %w", piece, io.ErrUnexpectedEOF)
		}
		return nil
	})
}

// readBuffered copies what is in memory, and tells whether that is everything.
func (p *bolt) readBuffered(b []byte, piece, seg, at int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.pieces[piece]
	if in == nil || in.segments[seg] == nil {
		return false
	}
	s := in.segments[seg]
	for _, e := range s.written {
		if from, to := max(e.from, at), min(e.to, at+len(b)); from < to {
			copy(b[from-at:to-at], (*s.data)[from:to])
		}
	}
	return s.written.holds(at, at+len(b))
}

// storedSegment returns a segment from the database, valid until the transaction ends, or nil.
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

// flight is a segment that is being written to the database.
type flight struct {
	piece, seg int
	s          *segment
}

// flush writes the whole pieces, or all segments. They can be read from memory until they are in
// the database.
func (p *bolt) flush(all bool) error {
	p.flushing <- struct{}{}
	defer func() { <-p.flushing }()
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
		if !f.s.written.holds(0, len(data)) {
			data = merge(data, f.s.written, b.Get(segmentKey(f.seg)))
		}
		if err := b.Put(segmentKey(f.seg), data); err != nil {
			return err
		}
	}
	return nil
}

// merge returns the stored segment with the written ranges of data.
func merge(data []byte, written extents, stored []byte) []byte {
	out := make([]byte, len(data))
	copy(out, stored)
	for _, e := range written {
		copy(out[e.from:e.to], data[e.from:e.to])
	}
	return out
}

// land removes segments from memory that are now in the database.
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

func (p *bolt) confirm(int) error { return nil }

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

func (p *bolt) lostPieces() ([]int, error) { return nil, p.expect() }

func (p *bolt) close() error { return p.db.Close() }
