package storage

import (
	"io/fs"
	"slices"
	"sync"

	"github.com/anacrolix/torrent/metainfo"
)

// writeBuffer collects blocks into chunks and writes these in the background, so that the network
// does not wait for the disk. A file system takes little more time for a quarter of a megabyte than
// for a block of 16 KiB. Creating a file may take as long as a fast path takes for a hundred
// blocks.
//
// A chunk is written when it is whole, when somebody reads its piece (flushPiece), when memory runs
// short, and at every regular sync. Until then its blocks are only in memory. A piece is complete
// only once all its blocks are on disk.
//
// Nobody waits for a timer of the store. A put that finds no room makes room (makeRoom), so it waits
// only for writes and syncs that are under way. After a failed sync, blocks that no record names no
// longer count, and it waits for writes only.
type writeBuffer struct {
	layout Layout
	write  func(b []byte, off int64) error
	sync   func()    // asks for a sync, and does not wait for it
	free   sync.Pool // of *[]byte, each of chunkLength bytes
	done   sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond     // a chunk was written, or has become due
	filling []*chunk      // chunks that still take blocks, the oldest first
	due     []*chunk      // chunks to be written, in this order
	waiting map[int]int   // of each piece: the number of chunks that are due or being written
	held    int           // chunks in memory
	bytes   int           // of the blocks in these
	leaving int           // of these, bytes in chunks that are due or being written
	queued  int           // puts that wait for room
	failed  map[int]error // of each piece: the first write error
	err     error         // the last error that no put has returned yet
	closed  bool
	blocks  *blocks // blocks of incomplete pieces that were written
}

// chunk is a part of a piece in memory.
type chunk struct {
	piece   int
	off     int64 // of its first byte in the torrent's data
	data    *[]byte
	size    int
	written extents
}

const (
	chunkSize = 256 << 10
	// maxBuffered bounds the blocks that a kill would lose: those in memory, also those of inPut, and
	// those that are written but not yet recorded. When it is reached, put waits, and so does the
	// network. It is enough for a pause of the disk of a second at 60 Mbit/s. A disk that takes time T
	// for a sync limits blocks that come out of order to about maxBuffered/2 for each T: 640 Mbit/s
	// at 50 ms.
	maxBuffered = 8 << 20
	// maxMemory bounds the memory of chunks. Blocks of several connections leave most chunks half
	// full. With less memory, chunks would be written block by block.
	maxMemory = 2 * maxBuffered
	// inPut is room for the blocks of 32 connections that wait in put. The engine counts them as
	// fetched.
	inPut = 32 * blockSize
	// maxChunks bounds the number of chunks in torrents of tiny pieces, whose chunks are no larger.
	maxChunks = 1024
)

// newWriteBuffer starts the writer. kept are blocks that an earlier download has written.
func newWriteBuffer(l Layout, kept map[int]bitset, write func(b []byte, off int64) error, sync func()) *writeBuffer {
	w := &writeBuffer{
		layout: l, write: write, sync: sync,
		waiting: map[int]int{}, failed: map[int]error{},
	}
	w.free.New = func() any { b := make([]byte, w.chunkLength()); return &b }
	w.changed.L = &w.mu
	w.blocks = newBlocks(l, kept, &w.changed)
	w.done.Go(w.run)
	return w
}

// chunkLength is the length of all chunks but the last one of a piece.
func (w *writeBuffer) chunkLength() int { return int(min(chunkSize, w.layout.PieceLength)) }

func (w *writeBuffer) run() {
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
		var done extents
		for _, e := range c.written {
			if err = w.write((*c.data)[e.from:e.to], c.off+int64(e.from)); err != nil {
				break
			}
			done = append(done, e)
		}
		w.free.Put(c.data)
		w.mu.Lock()
		begin, _ := w.layout.PieceRange(c.piece)
		for _, e := range done {
			w.blocks.wrote(c.piece, c.off-begin+int64(e.from), c.off-begin+int64(e.to))
		}
		w.held--
		w.bytes -= c.written.total()
		w.leaving -= c.written.total()
		w.syncIfDue()
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
func (w *writeBuffer) put(piece int, b []byte, off int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.err; err != nil {
		w.err = nil
		return err
	}
	for len(b) > 0 {
		c := w.chunk(piece, off, min(len(b), w.chunkLength()))
		if c == nil {
			return fs.ErrClosed
		}
		at := int(off - c.off)
		n := copy((*c.data)[at:c.size], b)
		var grown int
		c.written, grown = c.written.with(at, at+n)
		w.bytes += grown
		if c.written.holds(0, c.size) {
			w.leave(c)
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// chunk returns the chunk of a piece that takes n bytes, or the first of them, at off of the
// torrent's data. It may wait for room. It returns nil if the writer is closed.
func (w *writeBuffer) chunk(piece int, off int64, n int) *chunk {
	most := min(maxMemory/w.chunkLength(), maxChunks)
	for !w.closed {
		if w.blocks.stuck || w.bytes+n+w.blocks.unrecorded <= maxBuffered-inPut {
			for _, c := range w.filling {
				if c.off <= off && off < c.off+int64(c.size) {
					return c
				}
			}
			if len(w.filling) > 0 && w.held >= most/2 {
				w.leave(w.filling[0]) // so that there is room when the others need it
			}
			if w.held < most {
				return w.newChunk(piece, off)
			}
		}
		w.makeRoom()
		w.queued++
		w.changed.Wait() // the lock is open meanwhile: look again
		w.queued--
	}
	return nil
}

// makeRoom is called before each wait for room. Afterwards a chunk is due or being written, or a
// sync was requested, so the wait ends. It makes no more chunks due than a sync is worth: the rest
// may still become whole. The caller holds w.mu.
func (w *writeBuffer) makeRoom() {
	for len(w.filling) > 0 && w.leaving+w.blocks.unrecorded < maxUnrecorded {
		w.leave(w.filling[0])
	}
	w.syncIfDue()
}

// syncIfDue requests a sync if it would make much room, unless one is running or requested. The
// caller holds w.mu.
func (w *writeBuffer) syncIfDue() {
	if b := w.blocks; b.unrecorded >= maxUnrecorded && !b.stuck && !b.syncing {
		b.syncing = true
		w.sync()
	}
}

func (w *writeBuffer) newChunk(piece int, off int64) *chunk {
	length := int64(w.chunkLength())
	begin, size := w.layout.PieceRange(piece)
	first := (off - begin) / length * length
	c := &chunk{piece: piece, off: begin + first, size: int(min(length, size-first)), data: w.free.Get().(*[]byte)}
	w.filling = append(w.filling, c)
	w.held++
	return c
}

// leave makes a chunk due. The caller holds w.mu.
func (w *writeBuffer) leave(c *chunk) {
	w.filling = slices.DeleteFunc(w.filling, func(o *chunk) bool { return o == c })
	w.due = append(w.due, c)
	w.leaving += c.written.total()
	w.waiting[c.piece]++
	w.changed.Broadcast()
}

// fail makes the next put return an error.
func (w *writeBuffer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// flushPiece writes all blocks of a piece and waits for that. It returns a write error of the piece
// once.
func (w *writeBuffer) flushPiece(piece int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range slices.Clone(w.filling) {
		if c.piece == piece {
			w.leave(c)
		}
	}
	for w.waiting[piece] > 0 {
		w.changed.Wait()
	}
	err := w.failed[piece]
	delete(w.failed, piece)
	return err
}

// flush makes all chunks due, and does not wait for them. It reports whether there were any in
// memory.
func (w *writeBuffer) flush() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaveAll()
	return w.held > 0
}

// leaveAll makes all chunks due. The caller holds w.mu.
func (w *writeBuffer) leaveAll() {
	for len(w.filling) > 0 {
		w.leave(w.filling[0])
	}
}

// close writes all chunks. From now on put fails.
func (w *writeBuffer) close() {
	w.mu.Lock()
	w.leaveAll() // in one step with closed: run ends when nothing is due
	w.closed = true
	w.mu.Unlock()
	w.changed.Broadcast()
	w.done.Wait()
}

// IsBusy reports whether blocks of a torrent wait in memory until the disk has taken earlier ones.
func IsBusy(st Store, hash metainfo.Hash) bool {
	s := writable(st)
	if s == nil {
		return false
	}
	t := s.find(hash)
	if t == nil || t.writer == nil {
		return false
	}
	t.writer.mu.Lock()
	defer t.writer.mu.Unlock()
	return t.writer.queued > 0
}
