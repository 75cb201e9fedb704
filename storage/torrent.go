package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"
)

// How a block gets to disk, and a piece into the record, with every backend:
//
//  1. WriteAt puts the block into the write buffer, in memory.                    (concurrent calls)
//  2. The write buffer writes it into its place, with its neighbours.             (one goroutine)
//  3. WriteTo, with which the engine hashes a piece, waits for its blocks.        (concurrent calls)
//  4. MarkComplete notes that a piece is right.                                   (concurrent calls)
//  5. Every few seconds new data is synced. Then the pieces, and the blocks of
//     incomplete pieces, that are on disk are recorded.                           (one goroutine)
//
// Only step 5 waits until data is on disk: the download would spend most of its time with syncs if
// it had to wait for one of each of thousands of small files.

// syncEvery bounds how much has to be downloaded again after a power loss.
const syncEvery = 5 * time.Second

// place is where the bytes of one torrent lie, addressed by their offset in the torrent's data.
// Only write needs calls that do not overlap. Files are counted as the record counts them.
type place interface {
	write(b []byte, off int64) error
	// read fills b. Where nothing was written it returns zeros or io.ErrUnexpectedEOF.
	read(b []byte, off int64) error
	// confirm checks a piece that was read again if somebody else has changed its files.
	confirm(piece int) error
	// mark is told that a piece, all of which was written, is right and was not, or the other way
	// round. Files get their final names by it.
	mark(piece int, right bool) error
	// sync brings all written data to disk, and returns the files that have changed since the last
	// successful sync.
	sync() (changed []int, err error)
	// lostPieces returns the pieces in files that are gone or were changed by somebody else. It is
	// an error if only opening the place again could repair that.
	lostPieces() ([]int, error)
	// stamp is how the last sync has left a file, or how opening has found it; noStamp if it was
	// changed since.
	stamp(file int) stamp
	close() error
}

type torrent struct {
	layout Layout
	place  place
	pieces *verdicts
	record *record // nil: the data is only read
	log    *slog.Logger
	writer *writeBuffer
	early  chan struct{} // asks for a sync now; has room for one request
	due    *time.Timer   // the time of the next sync, if armed
	armed  atomic.Bool
	stop   chan struct{}
	synced sync.WaitGroup // the goroutine of step 5

	reading sync.RWMutex // held by Blocks.Read, whose caller does not know when the torrent is closed
	closed  bool

	syncing sync.Mutex
	changed map[int]bool // files whose state is not in the record

	warned atomic.Bool // the user was told of data that cannot be read any more
}

// newTorrent owns the place from now on. known is what the record says of the data.
func newTorrent(l Layout, p place, rec *record, known recorded, log *slog.Logger) *torrent {
	t := &torrent{
		layout: l, place: p, pieces: known.pieces, record: rec, log: log,
		early: make(chan struct{}, 1), stop: make(chan struct{}), changed: map[int]bool{},
	}
	for _, i := range known.changed {
		t.changed[i] = true
	}
	if rec != nil {
		t.writer = newWriteBuffer(l, known.blocks, p.write, t.syncEarly)
		t.due = time.NewTimer(syncEvery)
		t.armed.Store(true)
		t.synced.Go(t.syncLoop)
	}
	return t
}

func (t *torrent) piece(p metainfo.Piece) engine.PieceImpl {
	x := piece{t, p.Index(), p.Offset()}
	if t.writer != nil && t.writer.blocks.wasServed(x.index) {
		return mixed{x}
	}
	return x
}

// syncEarly asks for a sync now, and does not wait for it.
func (t *torrent) syncEarly() {
	select {
	case t.early <- struct{}{}:
	default:
	}
}

// touch has what was changed so far synced and recorded in time.
func (t *torrent) touch() {
	if !t.armed.Swap(true) {
		t.due.Reset(syncEvery)
	}
}

// syncLoop syncs every few seconds while something changes. Without changes it waits without a
// timer, so that an idle torrent costs nothing.
func (t *torrent) syncLoop() {
	defer t.due.Stop()
	for {
		inMemory := false
		select {
		case <-t.due.C:
			t.armed.Store(false)
			inMemory = t.writer.flush() // chunks of pieces that get no more blocks
		case <-t.early:
		case <-t.stop:
			return
		}
		err := t.sync()
		if err != nil {
			t.log.Warn("data not synced to disk; it is tried again", "torrent", t.layout.Name, "error", err)
			t.writer.fail(err)
		}
		if err != nil || inMemory {
			t.touch()
		}
	}
}

// sync brings all written data to disk, then records the right pieces, and the blocks of others.
// The next sync repeats whatever has failed.
func (t *torrent) sync() error {
	t.syncing.Lock()
	defer t.syncing.Unlock()
	blocks := t.writer.blocks.note() // first: a piece that is right from now on has none any more
	t.pieces.note()
	files, err := t.place.sync()
	for _, i := range files {
		t.changed[i] = true
	}
	if err == nil {
		err = t.record.checkpoint(blocks, t.changed, t.place.stamp)
	}
	t.writer.blocks.recorded(err == nil)
	return err
}

// missed is told that a piece could not be read. The piece does not count as right any more. The
// engine asks for that after each failure, and so fetches the piece again.
func (t *torrent) missed(index int, err error) {
	if !t.pieces.lose(index) {
		return
	}
	if !t.warned.Swap(true) {
		t.log.Warn("data that was there cannot be read any more; the pieces concerned are not served",
			"torrent", t.layout.Name, "piece", index, "error", err)
	}
	if t.record == nil {
		return
	}
	if err := errors.Join(t.place.mark(index, false), t.recordWrong(index, true)); err != nil {
		t.log.Warn("a piece that is gone is still in the record", "piece", index, "error", err)
	}
}

// forgetBlocks removes the blocks of a wrong piece from the record. It keeps them if some of the
// piece's blocks are missing, since those that are there may be right. If the record cannot be
// written now, the next sync removes them.
func (t *torrent) forgetBlocks(piece int) error {
	if !t.writer.blocks.whole(piece) {
		return nil
	}
	t.syncing.Lock() // a sync that has begun may record them
	defer t.syncing.Unlock()
	t.writer.blocks.drop(piece)
	return t.record.forgetBlocks(piece)
}

// recordWrong removes a piece from the record. If that fails, because the disk is full for example,
// the next sync does it, in one with the stamps of changed files.
func (t *torrent) recordWrong(piece int, gone bool) error {
	err := t.record.remove(gone, piece)
	if err != nil {
		t.touch()
	}
	return err
}

func (t *torrent) close() error {
	if t.record == nil {
		return t.place.close()
	}
	t.writer.close()
	close(t.stop)
	t.synced.Wait()
	err := t.sync()
	t.reading.Lock()
	defer t.reading.Unlock()
	t.closed = true
	if err == nil {
		err = t.record.release(t.changed)
	}
	return errors.Join(err, t.place.close())
}

// piece is a piece as the engine uses it.
type piece struct {
	torrent *torrent
	index   int
	off     int64
}

func (p piece) ReadAt(b []byte, off int64) (int, error) {
	if err := p.flush(); err != nil {
		return 0, err
	}
	err := p.torrent.place.read(b, p.off+off)
	if err == nil {
		err = p.torrent.place.confirm(p.index)
	}
	if err != nil {
		return 0, p.unreadable(err)
	}
	return len(b), nil
}

// WriteTo writes the piece to a hash, which never fails. The engine alone would call ReadAt for
// each 32 KiB.
func (p piece) WriteTo(w io.Writer) (n int64, err error) {
	if err := p.flush(); err != nil {
		return 0, err
	}
	buf := hashBuffers.Get().(*[hashPart]byte)
	defer hashBuffers.Put(buf)
	t := p.torrent
	err = partsOf(t.layout, t.place, p.index, buf[:], func(b []byte, _ int64) error {
		k, err := w.Write(b)
		n += int64(k)
		return err
	})
	if err != nil {
		return n, p.unreadable(err)
	}
	return n, nil
}

// flush waits until the blocks of the piece are written to its place.
func (p piece) flush() error {
	if w := p.torrent.writer; w != nil {
		return w.flushPiece(p.index)
	}
	return nil
}

// tooManyOpen tells whether an error says that too many files are open, which says nothing of the
// file that was to be opened.
func tooManyOpen(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// unreadable is told why the piece could not be read, and returns the error for the engine.
func (p piece) unreadable(err error) error {
	if tooManyOpen(err) {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = io.ErrUnexpectedEOF // as if the file were too short
	}
	p.torrent.missed(p.index, err)
	return err
}

func (p piece) WriteAt(b []byte, off int64) (int, error) {
	if p.torrent.writer == nil {
		return 0, fs.ErrPermission
	}
	if err := p.torrent.writer.put(p.index, b, p.off+off); err != nil {
		return 0, err
	}
	p.torrent.touch()
	return len(b), nil
}

func (p piece) MarkComplete() error {
	t := p.torrent
	if t.record == nil {
		return nil
	}
	defer t.touch()
	news := t.pieces.set(p.index, true)
	var err error
	if news {
		err = t.place.mark(p.index, true)
	}
	t.writer.blocks.drop(p.index) // last: from here on the piece itself will be recorded
	return err
}

func (p piece) MarkNotComplete() error {
	t := p.torrent
	news := t.pieces.set(p.index, false)
	if t.record == nil {
		return nil
	}
	defer t.touch()
	// The record first: new blocks may be written as soon as this returns.
	err := errors.Join(t.forgetBlocks(p.index), t.recordWrong(p.index, false))
	if news {
		err = errors.Join(err, t.place.mark(p.index, false))
	}
	return err
}

func (p piece) Completion() engine.Completion { return p.torrent.pieces.get(p.index) }

// SyncAndCheck brings a torrent's data to disk and then checks that all files are still whole.
// Somebody may have deleted or cut a file; a process that has it open does not notice. Pieces that
// are lost in this way are returned and removed from the record. The store comes from Open.
func SyncAndCheck(st Store, hash metainfo.Hash) (lost []int, err error) {
	s := writable(st)
	if s == nil {
		return nil, nil // nothing was written
	}
	t := s.find(hash)
	if t == nil {
		return nil, nil
	}
	if lost, err = t.syncAndCheck(); err != nil {
		return lost, fmt.Errorf("bring the data of %s to disk: %w", t.layout.Name, err)
	}
	return lost, nil
}

func (t *torrent) syncAndCheck() ([]int, error) {
	if err := t.sync(); err != nil {
		return nil, err
	}
	gone, err := t.place.lostPieces()
	if err != nil {
		return nil, err
	}
	lost := slices.DeleteFunc(gone, func(p int) bool { return !t.pieces.lose(p) })
	if len(lost) == 0 {
		return nil, nil
	}
	for _, p := range lost {
		err = errors.Join(err, t.place.mark(p, false))
	}
	return lost, errors.Join(err, t.record.remove(true, lost...))
}
