package storage

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/anacrolix/torrent/metainfo"
)

// Blocks of pieces that are not complete are kept, too: a piece may be as large as 256 MiB. How a
// block gets into the record and from there back into a piece:
//
//  1. behind notes each block that the place has taken.                            (one goroutine)
//  2. A sync brings the data to disk, then the record is told of the blocks that were
//     written before it. A sync comes early if a kill would cost too much.         (one goroutine)
//  3. A block that is on disk is read from there when the engine asks a peer for it.(concurrent calls)
//  4. The piece is hashed like any other. If it is wrong, its blocks are forgotten, and
//     no peer is blamed: nobody knows who has sent them.
//
// Nothing vouches for a single block but its piece. So blocks also count in a file that has changed
// since it was recorded, as every file has after a kill, if the change may be the download's own.

const (
	// blockSize is the size of a block, as the engine asks for them. The last one of a piece
	// may be shorter.
	blockSize = 16 << 10
	// maxPartial is how many pieces have their blocks kept. More are begun only if somebody
	// begins pieces and leaves them.
	maxPartial = 4096
	// maxUnrecorded is how many bytes of blocks wait for the next regular sync. More bring an
	// early one.
	maxUnrecorded = maxBehind / 2
)

// blocks are the blocks of incomplete pieces that were written. Whoever has them keeps calls apart.
type blocks struct {
	layout     Layout
	pieces     map[int]*partial
	unrecorded int          // bytes that were written and are not in the record
	forgotten  map[int]bool // pieces of which the record may still name blocks
	served     map[int]bool // pieces of which blocks were ever read for the engine
}

// partial is what there is of a piece.
type partial struct {
	bits       bitset // of the blocks
	untaken    bitset // those of an earlier download that the engine has not got yet
	unrecorded int    // bytes
	changed    bool   // since the last note
	recorded   bool   // the record may name some
	served     bool   // blocks of it were read for the engine
}

// note is what the record is to be told of a piece.
type note struct {
	piece int
	bits  bitset // nil: it has no blocks any more
	bytes int    // that were not in the record
	of    *partial
}

// newBlocks begins with the blocks that the record names.
func newBlocks(l Layout, kept map[int]bitset) blocks {
	b := blocks{
		layout: l, pieces: map[int]*partial{}, forgotten: map[int]bool{}, served: map[int]bool{},
	}
	for piece, bits := range kept {
		b.pieces[piece] = &partial{bits: slices.Clone(bits), untaken: slices.Clone(bits), recorded: true}
	}
	return b
}

// blocksIn is the number of blocks of a piece.
func (l Layout) blocksIn(piece int) int {
	_, n := l.PieceRange(piece)
	return int((n + blockSize - 1) / blockSize)
}

// blockLength is the length of a block of a piece.
func (l Layout) blockLength(piece, block int) int {
	_, n := l.PieceRange(piece)
	return int(min(blockSize, n-int64(block)*blockSize))
}

// wrote notes that the bytes of a piece from one up to another were written. Blocks that are only
// in part among them are not noted.
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
			p.changed = true
			p.unrecorded += n
			b.unrecorded += n
		}
	}
}

// has tells whether a block is there.
func (b *blocks) has(piece int, begin, length int64) bool {
	p, i := b.pieces[piece], int(begin/blockSize)
	return p != nil && begin >= 0 && begin%blockSize == 0 && i < b.layout.blocksIn(piece) &&
		length == int64(b.layout.blockLength(piece, i)) && p.bits.has(i)
}

// whole tells whether all blocks of a piece are there.
func (b *blocks) whole(piece int) bool {
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

// drop forgets the blocks of a piece.
func (b *blocks) drop(piece int) {
	p := b.pieces[piece]
	if p == nil {
		return
	}
	b.unrecorded -= p.unrecorded
	if p.recorded {
		b.forgotten[piece] = true
	}
	delete(b.pieces, piece)
}

// notes are what has changed since the last ones. What becomes of them is told with noted.
func (b *blocks) notes() (out []note) {
	for i, p := range b.pieces {
		if p.changed {
			p.changed = false
			delete(b.forgotten, i)
			out = append(out, note{i, slices.Clone(p.bits), p.unrecorded, p})
		}
	}
	return append(out, b.drops()...)
}

// drops are the notes of pieces that have no blocks any more.
func (b *blocks) drops() (out []note) {
	for i := range b.forgotten {
		out = append(out, note{piece: i})
	}
	clear(b.forgotten)
	return out
}

// noted says whether notes are in the record.
func (b *blocks) noted(notes []note, ok bool) {
	for _, n := range notes {
		p := b.pieces[n.piece]
		switch {
		case p == nil || p != n.of:
			if n.bits != nil || !ok { // the record has, or may still have, what was dropped
				b.forgotten[n.piece] = true
			}
		case ok:
			p.recorded = true
			p.unrecorded -= n.bytes
			b.unrecorded -= n.bytes
		default:
			p.changed, p.recorded = true, true
		}
	}
}

// Blocks are the blocks of incomplete pieces that a store from Open has on disk, most of them from
// an earlier download. The engine knows of whole pieces only, and asks peers for them.
type Blocks struct{ t *torrent }

// BlocksOf returns the blocks of a torrent that is open in a store; nil if it is only read.
func BlocksOf(st Store, hash metainfo.Hash) *Blocks {
	s, ok := st.(*store)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.open[hash]; t != nil {
		return &Blocks{t}
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
		return fs.ErrNotExist // found wrong meanwhile
	}
	p.served = true
	t.writer.blocks.served[piece] = true
	return nil
}

// Taken notes that the engine has got a block. It tells whether that came from disk.
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

// Untaken is the number of bytes of an earlier download that the engine has not got yet.
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

// mixed is a piece of which some blocks were read from disk for the engine. It hashes itself: for
// the engine the peer that was asked for a block has sent it, and would be banned if it is wrong.
type mixed struct{ piece }

// SelfHash implements the engine's SelfHashing. An error keeps the engine from blaming anybody.
func (p mixed) SelfHash() (metainfo.Hash, error) {
	t := p.torrent
	if err := t.writer.settle(p.index); err != nil {
		return metainfo.Hash{}, err
	}
	sum, err := sumOf(t.layout, placeReader{t.place}, p.index, make([]byte, hashPart))
	if err != nil {
		return sum, p.missing(err)
	}
	if [20]byte(t.layout.pieceHash(p.index)) != sum && t.writer.isServed(p.index) {
		return sum, errKeptWrong
	}
	return sum, nil
}
