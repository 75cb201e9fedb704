package storage

import "time"

// inspectEvery is for how long a changed file may be served as it is. To look at each read would
// take as long as to read a block.
const inspectEvery = time.Second

// inspect looks whether somebody else has changed a file with its final name. If so, the pieces of
// the file are checked again before they are served.
func (f *files) inspect(h *handle) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := h.index
	if f.stamps == nil || !f.final[i] || f.writing == i || time.Since(h.inspected) < inspectEvery {
		return nil
	}
	h.inspected = time.Now()
	st, err := h.Stat()
	if err != nil || f.stamps[i] == stampFrom(st) {
		return err
	}
	f.stamps[i], f.altered[i] = stampFrom(st), true
	if f.changes++; f.unsure == nil {
		f.unsure = newBitset(f.layout.Pieces())
	}
	begin, end := f.layout.FilePieces(f.layout.Files[i])
	for p := begin; p < end; p++ {
		f.unsure.set(p)
	}
	return nil
}

// confirm hashes a piece again if somebody else has changed a file of it.
func (f *files) confirm(piece int) error {
	f.mu.Lock()
	unsure, changes := f.unsure != nil && f.unsure.has(piece), f.changes
	f.mu.Unlock()
	if !unsure {
		return nil
	}
	buf := hashBuffers.Get().(*[hashPart]byte)
	defer hashBuffers.Put(buf)
	sum, err := sumOf(f.layout, f, piece, buf[:])
	if err == nil && sum != f.layout.pieceHash(piece) {
		err = errWrong
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && changes == f.changes {
		f.unsure.clear(piece)
	}
	return err
}
