package storage

import "sync"

// behind writes blocks while the network goes on. Making a file can take the file system as long as a
// fast path takes for a hundred blocks, and who reads from a path must not stand still for that.
type behind struct {
	write   func(b []byte, off int64) error
	queue   chan block
	buffers sync.Pool // of *[]byte
	done    sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond     // a block has been written
	waiting map[int]int   // blocks of each piece that are not written yet
	failed  map[int]error // of each piece: the first block that could not be written
	err     error         // the last failure that no put has returned yet
}

type block struct {
	piece int
	off   int64
	b     *[]byte // from behind.buffers
}

// maxBehind is how many blocks may wait, 8 MiB of the usual size: some hundred small files, or a disk's
// pause of a second at 60 Mbit/s. A writer that is further behind slows the network down.
const maxBehind = 512

func newBehind(write func(b []byte, off int64) error) *behind {
	w := &behind{
		write: write, queue: make(chan block, maxBehind),
		buffers: sync.Pool{New: func() any { return new([]byte) }},
		waiting: map[int]int{}, failed: map[int]error{},
	}
	w.changed.L = &w.mu
	w.done.Go(w.run)
	return w
}

func (w *behind) run() {
	for b := range w.queue {
		err := w.write(*b.b, b.off)
		w.buffers.Put(b.b)
		w.mu.Lock()
		if w.waiting[b.piece]--; w.waiting[b.piece] == 0 {
			delete(w.waiting, b.piece)
		}
		if err != nil {
			w.err = err
			if w.failed[b.piece] == nil {
				w.failed[b.piece] = err
			}
		}
		w.mu.Unlock()
		w.changed.Broadcast()
	}
}

// put takes a copy of a block. Its error may be that of an earlier block.
func (w *behind) put(piece int, b []byte, off int64) error {
	w.mu.Lock()
	if err := w.err; err != nil {
		w.err = nil
		w.mu.Unlock()
		return err
	}
	w.waiting[piece]++
	w.mu.Unlock()
	buf := w.buffers.Get().(*[]byte)
	*buf = append((*buf)[:0], b...)
	w.queue <- block{piece, off, buf}
	return nil
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
	for w.waiting[piece] > 0 {
		w.changed.Wait()
	}
	err := w.failed[piece]
	delete(w.failed, piece)
	return err
}

// close writes what waits. Nobody puts any more.
func (w *behind) close() {
	close(w.queue)
	w.done.Wait()
}
