package storage

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"
)

// How a block gets to disk, and a piece into the record, with every backend:
//
//  1. WriteAt leaves it to the writer, in memory.                                       (concurrent calls)
//  2. The writer puts it into its place, with its neighbours.                           (one goroutine)
//  3. ReadAt, with which the engine hashes a piece, waits for the piece's blocks.       (concurrent calls)
//  4. MarkComplete notes that a piece is right.                                         (concurrent calls)
//  5. Every few seconds what was written since is synced, then the record is told of
//     the pieces, and the blocks of others, that are on disk by then.                   (one goroutine)
//
// Nothing but step 5 waits for the disk to sync: a sync of each of thousands of small files, one after
// the other in the way of the download, takes most of the time that the download has.

// syncEvery bounds what is downloaded again after a power loss.
const syncEvery = 5 * time.Second

// place is where the bytes of one torrent lie, addressed by their offset in the torrent's data. It does not know what
// of them is right, except for the names of files. What mark and sync do not say otherwise may be called at any time.
type place interface {
	// write is called by one goroutine.
	write(b []byte, off int64) error
	// read fills b. What was never written is io.ErrUnexpectedEOF, or zeros.
	read(b []byte, off int64) error
	// mark is told when a piece, all of which was written, becomes right or wrong.
	mark(piece int, right bool) error
	// sync brings to disk what was written before, and returns which files have changed since the last sync that
	// succeeded, as the record counts them.
	sync() (changed []int, err error)
	// gone returns the pieces that were right and are not there any more. What could only be repaired by opening the
	// place again is an error.
	gone() ([]int, error)
	// stamp is how a file, as the record counts them, was left by write, or found by opening; noStamp if somebody else
	// has changed it since.
	stamp(file int) stamp
	close() error
}

// torrent is the data of one torrent.
type torrent struct {
	layout Layout
	place  place
	record *record // nil: the data is only read
	log    *slog.Logger
	writer *behind
	early  chan struct{} // a sync is wanted now; has room for one
	stop   chan struct{}
	synced sync.WaitGroup // the goroutine of step 5

	reading sync.RWMutex // held while a block is read that the engine does not know of
	closed  bool

	syncing sync.Mutex
	changed map[int]bool // files that the record does not have as they are

	mu    sync.Mutex
	right []bool // of each piece
	ready []int  // pieces that the record does not have as they are
	lost  bool   // the user was told of data that went away
}

// newTorrent takes the place over. What is known of the data comes from the record.
func newTorrent(l Layout, p place, rec *record, known recorded, log *slog.Logger) *torrent {
	t := &torrent{
		layout: l, place: p, record: rec, log: log,
		early: make(chan struct{}, 1), stop: make(chan struct{}), right: known.right, changed: map[int]bool{},
	}
	for _, i := range known.changed {
		t.changed[i] = true
	}
	if rec != nil {
		t.writer = newBehind(l, known.blocks, p.write, t.syncEarly)
		t.synced.Go(t.syncLoop)
	}
	return t
}

func (t *torrent) impl() engine.TorrentImpl {
	return engine.TorrentImpl{
		Piece: func(p metainfo.Piece) engine.PieceImpl {
			x := piece{t, p.Index(), p.Offset()}
			if t.writer != nil && t.writer.wasServed(x.index) {
				return mixed{x}
			}
			return x
		},
		Close: t.close,
	}
}

// syncEarly has a sync done now.
func (t *torrent) syncEarly() {
	select {
	case t.early <- struct{}{}:
	default:
	}
}

func (t *torrent) syncLoop() {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		regular := false
		select {
		case <-tick.C:
			regular = true
		case <-t.early:
		case <-t.stop:
			return
		}
		if err := t.sync(); err != nil {
			t.log.Warn("data not synced to disk; it is tried again", "torrent", t.layout.Name, "error", err)
			t.writer.fail(err)
		}
		if regular {
			t.writer.flush() // of pieces that do not go on; the next sync has them
		}
	}
}

// sync brings what was written to disk, then the pieces that are right, and blocks of others, into
// the record. What fails is tried again.
func (t *torrent) sync() error {
	t.syncing.Lock()
	defer t.syncing.Unlock()
	t.mu.Lock()
	ready := t.ready
	t.ready = nil
	t.mu.Unlock()
	notes := t.writer.notes()
	files, err := t.place.sync()
	for _, i := range files {
		t.changed[i] = true
	}
	if err == nil && (len(ready) > 0 || len(t.changed) > 0 || len(notes) > 0) {
		err = t.record.checkpoint(ready, notes, t.changed, t.place.stamp)
	}
	t.writer.noted(notes, err == nil)
	if err != nil {
		t.mu.Lock()
		t.ready = append(ready, t.ready...)
		t.mu.Unlock()
		return err
	}
	return nil
}

// mark notes whether a piece is right.
func (t *torrent) mark(piece int, right bool) error {
	t.mu.Lock()
	if right {
		t.ready = append(t.ready, piece)
	}
	same := t.right[piece] == right
	t.right[piece] = right
	t.mu.Unlock()
	if same {
		return nil
	}
	return t.place.mark(piece, right)
}

// missed is told that a piece could not be read. If it was held to be right it is not any more, and the engine, which
// asks after every failure, learns that it has to be fetched again.
func (t *torrent) missed(index int, err error) {
	t.mu.Lock()
	was, told := t.right[index], t.lost
	if was {
		t.lost = true
		t.right[index] = false
	}
	t.mu.Unlock()
	if !was {
		return
	}
	if !told {
		t.log.Warn("data that was there cannot be read any more; the pieces concerned are not served",
			"torrent", t.layout.Name, "piece", index, "error", err)
	}
	if t.record == nil {
		return
	}
	if err := errors.Join(t.place.mark(index, false), t.recordWrong(index)); err != nil {
		t.log.Warn("a piece that is gone is still in the record", "piece", index, "error", err)
	}
}

// forgetBlocks forgets the blocks of a piece that is wrong though all of them are there. If the
// record cannot be told, the next sync does it.
func (t *torrent) forgetBlocks(piece int) error {
	if !t.writer.isWhole(piece) {
		return nil
	}
	t.syncing.Lock() // a sync that has begun may tell the record of them
	defer t.syncing.Unlock()
	t.writer.drop(piece)
	notes := t.writer.drops()
	if len(notes) == 0 {
		return nil
	}
	err := t.record.checkpoint(nil, notes, nil, nil)
	t.writer.noted(notes, err == nil)
	return err
}

// recordWrong takes a piece out of the record. If that fails, say because the disk is full, the next sync does it, before
// the record vouches for any file again.
func (t *torrent) recordWrong(piece int) error {
	err := t.record.set(false, piece)
	if err != nil {
		t.mu.Lock()
		t.ready = append(t.ready, piece)
		t.mu.Unlock()
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

// piece is a piece in the engine's eyes.
type piece struct {
	torrent *torrent
	index   int
	off     int64
}

func (p piece) ReadAt(b []byte, off int64) (int, error) {
	t := p.torrent
	if t.writer != nil {
		if err := t.writer.settle(p.index); err != nil {
			return 0, err
		}
	}
	if err := t.place.read(b, p.off+off); err != nil {
		return 0, p.missing(err)
	}
	return len(b), nil
}

// missing is told why the piece could not be read, and returns what the engine is to know of it.
func (p piece) missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = io.ErrUnexpectedEOF // as of a file that ends before
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
	return len(b), nil
}

func (p piece) MarkComplete() error {
	if p.torrent.record == nil {
		return nil
	}
	if err := p.torrent.record.set(true, p.index); err != nil {
		return err
	}
	err := p.torrent.mark(p.index, true)
	p.torrent.writer.drop(p.index) // afterwards: the piece is on its way to the record
	return err
}

func (p piece) MarkNotComplete() error {
	if p.torrent.record == nil {
		p.torrent.mu.Lock()
		defer p.torrent.mu.Unlock()
		p.torrent.right[p.index] = false
		return nil
	}
	// The record first: new blocks may be written as soon as this returns.
	if err := errors.Join(p.torrent.forgetBlocks(p.index), p.torrent.recordWrong(p.index)); err != nil {
		return err
	}
	return p.torrent.mark(p.index, false)
}

func (p piece) Completion() engine.Completion {
	if p.torrent.record == nil {
		p.torrent.mu.Lock()
		defer p.torrent.mu.Unlock()
		return engine.Completion{Ok: true, Complete: p.torrent.right[p.index]}
	}
	return p.torrent.record.get(p.index)
}
