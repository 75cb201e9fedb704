package storage

import (
	"crypto/sha1"
	"errors"
	"io/fs"
	"slices"
	"sync"

	"github.com/anacrolix/torrent/metainfo"
)

// Blocks of incomplete pieces survive a restart too, since a piece may be as large as 256 MiB. How
// a block gets into the record and from there back into a piece:
//
//  1. The write buffer notes each block that it has written.                      (one goroutine)
//  2. A sync brings the data to disk, then the blocks written before it are recorded.
//     A sync comes early if a kill would lose too much.                           (one goroutine)
//  3. When the engine asks a peer for a block that is on disk, it is read there.  (concurrent calls)
//  4. The piece is hashed like any other. If it is wrong, its blocks are forgotten. No
//     peer is blamed, since nobody knows who has sent them.
//
// Only its piece can prove a block right. So a block may also lie in a file that has changed since
// it was recorded (after a kill every file has), if the change may be the download's own.

const (
	// blockSize is the size of a block, as the engine asks for them. The last one of a piece
	// may be shorter.
	blockSize = 16 << 10
	// maxPartial is of how many pieces blocks are kept. An honest download begins fewer.
	maxPartial = 4096
	// maxUnrecorded is how many bytes of blocks may wait for the next regular sync. More cause an
	// early one.
	maxUnrecorded = maxBuffered / 2
)

// blocks are the written blocks of incomplete pieces.
type blocks struct {
	layout Layout

	changed    *sync.Cond // of the write buffer; its lock guards the following
	pieces     map[int]*partial
	unrecorded int          // bytes of blocks that are not in the record
	fresh      bool         // the record has other blocks
	served     map[int]bool // pieces of which the engine was ever given blocks
	stuck      bool         // the last sync has failed: do not wait for the next one
	syncing    bool         // a sync is running or requested
}

type partial struct {
	bits       bitset // of the blocks
	untaken    bitset // those of an earlier download that the engine has not got yet
	unrecorded int    // bytes of blocks that are not in the record
	noted      int    // of these, those of the last note
	served     bool   // the engine was given blocks of it
}

// newBlocks begins with the blocks in the record.
func newBlocks(l Layout, kept map[int]bitset, changed *sync.Cond) *blocks {
	b := &blocks{layout: l, changed: changed, pieces: map[int]*partial{}, served: map[int]bool{}}
	for piece, bits := range kept {
		b.pieces[piece] = &partial{bits: slices.Clone(bits), untaken: slices.Clone(bits)}
	}
	return b
}

func (l Layout) blocksIn(piece int) int {
	_, n := l.PieceRange(piece)
	return int((n + blockSize - 1) / blockSize)
}

func (l Layout) blockLength(piece, block int) int {
	_, n := l.PieceRange(piece)
	return int(min(blockSize, n-int64(block)*blockSize))
}

// wrote notes the blocks of a piece that lie between two of its bytes, and so were written as a
// whole. The caller holds the lock.
func (b *blocks) wrote(piece int, from, to int64) {
	p := b.pieces[piece]
	if p == nil {
		if len(b.pieces) >= maxPartial {
			return
		}
		p = &partial{bits: newBitset(b.layout.blocksIn(piece))}
		b.pieces[piece] = p
	}
	for i := int((from + blockSize - 1) / blockSize); i < b.layout.blocksIn(piece); i++ {
		n := b.layout.blockLength(piece, i)
		if int64(i)*blockSize+int64(n) > to {
			break
		}
		if !p.bits.has(i) {
			p.bits.set(i)
			p.unrecorded += n
			b.unrecorded += n
			b.fresh = true
		}
	}
}

// has tells whether a block was written. The caller holds the lock.
func (b *blocks) has(piece int, begin, length int64) bool {
	p, i := b.pieces[piece], int(begin/blockSize)
	return p != nil && begin >= 0 && begin%blockSize == 0 && i < b.layout.blocksIn(piece) &&
		length == int64(b.layout.blockLength(piece, i)) && p.bits.has(i)
}

// whole tells whether all blocks of a piece were written.
func (b *blocks) whole(piece int) bool {
	b.changed.L.Lock()
	defer b.changed.L.Unlock()
	p := b.pieces[piece]
	return p != nil && b.layout.isWhole(piece, p.bits)
}

func (l Layout) isWhole(piece int, bits bitset) bool {
	for i := range l.blocksIn(piece) {
		if !bits.has(i) {
			return false
		}
	}
	return true
}

// drop forgets the blocks of a piece, which is complete or wrong.
func (b *blocks) drop(piece int) {
	b.changed.L.Lock()
	defer b.changed.L.Unlock()
	p := b.pieces[piece]
	if p == nil {
		return
	}
	b.unrecorded -= p.unrecorded
	b.fresh = true
	delete(b.pieces, piece)
	b.changed.Broadcast()
}

// note returns all blocks, to be recorded after the next sync; nil: the record has them. The caller
// calls recorded next.
func (b *blocks) note() map[int]bitset {
	b.changed.L.Lock()
	defer b.changed.L.Unlock()
	b.syncing = true
	if !b.fresh {
		return nil
	}
	b.fresh = false
	out := make(map[int]bitset, len(b.pieces))
	for i, p := range b.pieces {
		p.noted = p.unrecorded
		out[i] = slices.Clone(p.bits)
	}
	return out
}

// recorded is told whether the last note was recorded.
func (b *blocks) recorded(ok bool) {
	b.changed.L.Lock()
	defer b.changed.L.Unlock()
	b.stuck, b.syncing, b.fresh = !ok, false, b.fresh || !ok
	b.changed.Broadcast()
	for _, p := range b.pieces {
		if ok {
			p.unrecorded -= p.noted
			b.unrecorded -= p.noted
		}
		p.noted = 0
	}
}

// isServed tells whether the engine was given blocks of a piece from disk since the piece was last
// found wrong, and wasServed whether it ever was.
func (b *blocks) isServed(piece int) bool {
	b.changed.L.Lock()
	defer b.changed.L.Unlock()
	p := b.pieces[piece]
	return p != nil && p.served
}

func (b *blocks) wasServed(piece int) bool {
	b.changed.L.Lock()
	defer b.changed.L.Unlock()
	return b.served[piece]
}

// Blocks are the blocks of incomplete pieces that a store from Open has on disk, most of them from
// an earlier download. The engine only knows of whole pieces, and asks peers for these blocks.
type Blocks struct{ t *torrent }

// BlocksOf returns the blocks of a torrent that is open in a store. It returns nil if the torrent
// is only read.
func BlocksOf(st Store, hash metainfo.Hash) *Blocks {
	if s := writable(st); s != nil {
		if t := s.find(hash); t != nil {
			return &Blocks{t}
		}
	}
	return nil
}

// Has tells whether a block is on disk.
func (b *Blocks) Has(piece int, begin, length int64) bool {
	w := b.t.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.blocks.has(piece, begin, length)
}

// Read reads a block that is on disk for the engine.
func (b *Blocks) Read(data []byte, piece int, begin int64) error {
	t := b.t
	t.reading.RLock()
	defer t.reading.RUnlock()
	if t.closed {
		return fs.ErrClosed
	}
	off, _ := t.layout.PieceRange(piece)
	if err := t.place.read(data, off+begin); err != nil {
		return err
	}
	t.writer.mu.Lock()
	defer t.writer.mu.Unlock()
	p := t.writer.blocks.pieces[piece]
	if p == nil {
		return fs.ErrNotExist // the piece was found wrong meanwhile
	}
	p.served = true
	t.writer.blocks.served[piece] = true
	return nil
}

// Taken notes that the engine has received a block, and tells whether the block came from disk.
func (b *Blocks) Taken(piece int, begin, length int64) bool {
	w := b.t.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.blocks.has(piece, begin, length) {
		return false
	}
	if p := w.blocks.pieces[piece]; p.untaken != nil {
		p.untaken.clear(int(begin / blockSize))
	}
	return true
}

// Untaken is the number of bytes of an earlier download that the engine has not received yet.
func (b *Blocks) Untaken() (bytes int64) {
	w := b.t.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	for piece, p := range w.blocks.pieces {
		for i := range len(p.untaken) * 8 {
			if p.untaken.has(i) {
				bytes += int64(b.t.layout.blockLength(piece, i))
			}
		}
	}
	return bytes
}

var errKeptWrong = errors.New("the piece is wrong, and has blocks of an earlier download")

// mixed is a piece of which the engine was given blocks from disk. It hashes itself: the engine
// believes that a peer has sent these blocks, and would ban that peer if the piece is wrong.
type mixed struct{ piece }

// SelfHash implements the engine's SelfHashing. If it returns an error, the engine blames nobody.
func (p mixed) SelfHash() (metainfo.Hash, error) {
	t, h := p.torrent, sha1.New()
	if _, err := p.WriteTo(h); err != nil {
		return metainfo.Hash{}, err
	}
	sum := metainfo.Hash(h.Sum(nil))
	if t.layout.pieceHash(p.index) != sum && t.writer.blocks.isServed(p.index) {
		return sum, errKeptWrong
	}
	return sum, nil
}
