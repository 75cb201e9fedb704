package storage

import (
	"io/fs"
	"slices"
	"sync"
)

// behind writes blocks while the network goes on, and in chunks: a file system takes a quarter of a megabyte in little more
// time than a block of 16 KiB, and to make a file may take it as long as a fast path takes for a hundred blocks.
//
// A chunk is written when it is whole, when somebody wants to read its piece (settle), when memory
// runs short, and at every sync. Until then its blocks are in memory only. A piece is complete only
// once all its blocks are written.
type behind struct {
	layout Layout
	write  func(b []byte, off int64) error
	sync   func()    // asks for a sync, and does not wait for it
	free   sync.Pool // of *[]byte, each of chunkLength bytes
	done   sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond        // a chunk was written, or is to be
	filling map[int][]*chunk // of each piece
	age     []*chunk         // of those, the oldest first
	due     []*chunk         // to be written, in order
	waiting map[int]int      // of each piece: the chunks that are due or being written
	held    int              // chunks in memory
	failed  map[int]error    // of each piece: the first chunk that could not be written
	err     error            // the last failure that no put has returned yet
	closed  bool
	blocks  blocks // of incomplete pieces: they were written
	stuck   bool   // the last sync has failed: there is no point in waiting for the next
}

// chunk is a part of a piece in memory.
type chunk struct {
	piece int
	off   int64 // of its first byte in the torrent's data
	data  *[]byte
	size  int
	known extents
}

const (
	chunkSize = 256 << 10
	// maxBehind is how much memory chunks may take: a disk's pause of a second at 60 Mbit/s,
	// and some hundred small files. A writer that is further behind slows the network down.
	// Blocks that are written and not recorded count, too, so that a kill costs no more.
	maxBehind = 8 << 20
	// maxChunks is for torrents of tiny pieces, whose chunks are no larger.
	maxChunks = 1024
)

// newBehind starts a writer. kept are blocks that are written already.
func newBehind(l Layout, kept map[int]bitset, write func(b []byte, off int64) error, sync func()) *behind {
	w := &behind{
		layout: l, write: write, sync: sync, blocks: newBlocks(l, kept),
		filling: map[int][]*chunk{}, waiting: map[int]int{}, failed: map[int]error{},
	}
	w.free.New = func() any { b := make([]byte, w.chunkLength()); return &b }
	w.changed.L = &w.mu
	w.done.Go(w.run)
	return w
}

// chunkLength is that of all chunks but the last of a piece.
func (w *behind) chunkLength() int { return int(min(chunkSize, w.layout.PieceLength)) }

func (w *behind) run() {
	for {
		w.mu.Lock()
		for len(w.due) == 0 && !w.closed {
			w.changed.Wait()
		}
		if len(w.due) == 0 {
			w.mu.Unlock()
			return
		}
		c := w.due[0]
		w.due = slices.Delete(w.due, 0, 1)
		w.mu.Unlock()

		var err error
		var written extents
		for _, e := range c.known {
			if err == nil {
				err = w.write((*c.data)[e.from:e.to], c.off+int64(e.from))
			}
			if err == nil {
				written = append(written, e)
			}
		}
		w.free.Put(c.data)
		w.mu.Lock()
		begin, _ := w.layout.PieceRange(c.piece)
		for _, e := range written {
			w.blocks.wrote(c.piece, c.off-begin+int64(e.from), c.off-begin+int64(e.to))
		}
		if w.blocks.unrecorded >= maxUnrecorded && !w.stuck {
			w.sync()
		}
		w.held--
		if w.waiting[c.piece]--; w.waiting[c.piece] == 0 {
			delete(w.waiting, c.piece)
		}
		if err != nil {
			w.err = err
			if w.failed[c.piece] == nil {
				w.failed[c.piece] = err
			}
		}
		w.mu.Unlock()
		w.changed.Broadcast()
	}
}

// put takes a copy of a block. Its error may be that of an earlier block.
func (w *behind) put(piece int, b []byte, off int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.err; err != nil {
		w.err = nil
		return err
	}
	for len(b) > 0 {
		c := w.chunk(piece, off)
		if c == nil {
			return fs.ErrClosed
		}
		at := int(off - c.off)
		n := copy((*c.data)[at:c.size], b)
		if c.known, _ = c.known.with(at, at+n); c.known.holds(0, c.size) {
			w.leave(c)
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// chunk is the one that takes the byte at off of the torrent's data, which is in the piece. There
// may be a wait for memory. It is nil if the writer is closed, or is closed meanwhile.
func (w *behind) chunk(piece int, off int64) *chunk {
	length := int64(w.chunkLength())
	for !w.closed {
		for _, c := range w.filling[piece] {
			if c.off <= off && off < c.off+int64(c.size) {
				return c
			}
		}
		most := min(maxBehind/int(length), maxChunks)
		if len(w.age) > 0 && w.held >= most/2 {
			w.leave(w.age[0]) // so that there is room when the others need it
		}
		if w.held < most && (w.stuck || w.held*int(length)+w.blocks.unrecorded < maxBehind) {
			return w.newChunk(piece, off)
		}
		w.changed.Wait() // the lock is open meanwhile: look again
	}
	return nil
}

func (w *behind) newChunk(piece int, off int64) *chunk {
	length := int64(w.chunkLength())
	begin, size := w.layout.PieceRange(piece)
	first := (off - begin) / length * length
	c := &chunk{piece: piece, off: begin + first, size: int(min(length, size-first)), data: w.free.Get().(*[]byte)}
	w.filling[piece] = append(w.filling[piece], c)
	w.age = append(w.age, c)
	w.held++
	return c
}

// leave has a chunk written. The caller holds w.mu.
func (w *behind) leave(c *chunk) {
	is := func(o *chunk) bool { return o == c }
	w.age = slices.DeleteFunc(w.age, is)
	if rest := slices.DeleteFunc(w.filling[c.piece], is); len(rest) > 0 {
		w.filling[c.piece] = rest
	} else {
		delete(w.filling, c.piece)
	}
	w.due = append(w.due, c)
	w.waiting[c.piece]++
	w.changed.Broadcast()
}

// fail has the next put return an error.
func (w *behind) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// settle waits until all blocks of the piece are written, and returns what went wrong with them, once.
func (w *behind) settle(piece int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range slices.Clone(w.filling[piece]) {
		w.leave(c)
	}
	for w.waiting[piece] > 0 {
		w.changed.Wait()
	}
	err := w.failed[piece]
	delete(w.failed, piece)
	return err
}

// flush has everything written that is there, and does not wait for it.
func (w *behind) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.age) > 0 {
		w.leave(w.age[0])
	}
}

// notes are what the record is to be told of blocks after the next sync. Every call is followed by
// one of noted.
func (w *behind) notes() []note {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.blocks.notes()
}

// drops are those of the notes that take blocks out of the record.
func (w *behind) drops() []note {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.blocks.drops()
}

// noted says whether notes are in the record.
func (w *behind) noted(notes []note, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocks.noted(notes, ok)
	w.stuck = !ok
	w.changed.Broadcast()
}

// isWhole tells whether all blocks of a piece are written that is not known to be right.
func (w *behind) isWhole(piece int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.blocks.whole(piece)
}

// drop forgets the blocks of a piece, because it is complete or because it is wrong.
func (w *behind) drop(piece int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocks.drop(piece)
	w.changed.Broadcast()
}

// isServed tells whether blocks of a piece were read from disk for the engine, since it was found
// wrong if it was.
func (w *behind) isServed(piece int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.blocks.pieces[piece]
	return p != nil && p.served
}

// wasServed tells whether that has ever been so.
func (w *behind) wasServed(piece int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.blocks.served[piece]
}

// close writes what waits, and has put refuse more.
func (w *behind) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.flush()
	w.changed.Broadcast()
	w.done.Wait()
}
