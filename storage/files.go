package storage

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"
)

// How a block gets to disk, and a piece into the record:
//
//  1. WriteAt leaves it to the writer.                                                  (concurrent calls)
//  2. The writer puts it at its place in its files, which are kept open for the next.   (one goroutine)
//  3. ReadAt, with which the engine hashes a piece, waits for the piece's blocks.       (concurrent calls)
//  4. MarkComplete notes that a piece is right, and gives files their final name whose
//     last piece it was.                                                                (concurrent calls)
//  5. Every few seconds the files written since are synced, then the record is told of
//     the pieces that are on disk by then.                                              (one goroutine)
//
// Nothing but step 5 waits for the disk to sync: a sync of each of thousands of small files, one after
// the other in the way of the download, takes most of the time that the download has.

const (
	// maxOpenFiles is how many files of a torrent are kept open. Downloads have about as many pieces under
	// way; more would come near the usual limit of 1024 for a process with several torrents.
	maxOpenFiles = 128
	// syncEvery bounds what is downloaded again after a crash.
	syncEvery = 5 * time.Second
)

// files is the data of one torrent in its final files.
type files struct {
	root   *os.Root
	layout Layout
	hash   metainfo.Hash
	record *record
	log    *slog.Logger
	writer *behind
	stop   chan struct{}
	synced sync.WaitGroup // the goroutine of step 5

	mu     sync.Mutex
	open   map[int]*handle // by index in layout.Files
	recent list.List       // of *handle, the one used last in front
	dirs   map[string]bool // that are known to be there
	left   []int           // of each file: pieces that are not right
	right  []bool          // of each piece
	final  []bool          // of each file: it has its final name
	dirty  map[int]bool    // files written to since they were synced
	ready  []metainfo.PieceKey
}

// handle is an open file. It is closed when nobody uses it and it is no longer in files.open.
type handle struct {
	*os.File
	index int
	place *list.Element // nil: not in files.open any more
	users int
}

func openFiles(dir string, l Layout, hash metainfo.Hash, rec *record, right []bool, log *slog.Logger) (*files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &files{
		root: root, layout: l, hash: hash, record: rec, log: log,
		stop: make(chan struct{}), open: map[int]*handle{}, dirs: map[string]bool{},
		left: make([]int, len(l.Files)), right: right, final: make([]bool, len(l.Files)), dirty: map[int]bool{},
	}
	for i, file := range l.Files {
		begin, end := l.filePieces(file)
		for p := begin; p < end; p++ {
			if !right[p] {
				f.left[i]++
			}
		}
		if _, err := root.Lstat(filepath.FromSlash(file.Path)); err == nil {
			f.final[i] = true
		} else if file.Length == 0 {
			if err := f.makeEmpty(i); err != nil {
				return nil, errors.Join(err, root.Close())
			}
		}
	}
	f.writer = newBehind(f.writeAt)
	f.synced.Go(f.syncLoop)
	return f, nil
}

func (f *files) makeEmpty(i int) error {
	f.final[i] = true
	file, err := f.openFile(i, os.O_CREATE|os.O_WRONLY)
	if err != nil {
		return err
	}
	return file.Close()
}

// name is the file's present name. The caller holds f.mu, except while f is being opened.
func (f *files) name(i int) string {
	n := filepath.FromSlash(f.layout.Files[i].Path)
	if !f.final[i] {
		n += partSuffix
	}
	return n
}

func (f *files) openFile(i, flags int) (*os.File, error) {
	name := f.name(i)
	if flags&os.O_CREATE != 0 {
		if dir := filepath.Dir(name); !f.dirs[dir] {
			if err := f.root.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
			f.dirs[dir] = true
		}
	}
	return f.root.OpenFile(name, flags, 0o644)
}

// take returns the file, open; create says whether it is made if it is not there. The caller gives it back.
func (f *files) take(i int, create bool) (*handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if create {
		f.dirty[i] = true
	}
	if h := f.open[i]; h != nil {
		f.recent.MoveToFront(h.place)
		h.users++
		return h, nil
	}
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	file, err := f.openFile(i, flags)
	if errors.Is(err, fs.ErrPermission) && !create { // data that we may only read can be seeded
		file, err = f.openFile(i, os.O_RDONLY)
		if err == nil {
			return &handle{File: file, index: i, users: 1}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	h := &handle{File: file, index: i, users: 1}
	h.place = f.recent.PushFront(h)
	f.open[i] = h
	if f.recent.Len() > maxOpenFiles {
		f.forget(f.recent.Back().Value.(*handle))
	}
	return h, nil
}

func (f *files) give(h *handle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.users--; h.users == 0 && h.place == nil {
		h.Close()
	}
}

// forget takes a file out of the open ones. The caller holds f.mu.
func (f *files) forget(h *handle) {
	f.recent.Remove(h.place)
	h.place = nil
	delete(f.open, h.index)
	if h.users == 0 {
		h.Close()
	}
}

// span calls do for each file that has a part of the n bytes of the torrent's data from off on. Padding has no file.
func (f *files) span(off int64, n int, do func(i int, at int64, from, to int) error) error {
	all := f.layout.Files
	end := off + int64(n)
	first := sort.Search(len(all), func(i int) bool { return all[i].Offset+all[i].Length > off })
	for i := first; i < len(all) && all[i].Offset < end; i++ {
		if all[i].Length == 0 {
			continue
		}
		from, to := max(off, all[i].Offset), min(end, all[i].Offset+all[i].Length)
		if err := do(i, from-all[i].Offset, int(from-off), int(to-off)); err != nil {
			return err
		}
	}
	return nil
}

func (f *files) writeAt(b []byte, off int64) error {
	return f.span(off, len(b), func(i int, at int64, from, to int) error {
		h, err := f.take(i, true)
		if err != nil {
			return err
		}
		defer f.give(h)
		_, err = h.WriteAt(b[from:to], at)
		return err
	})
}

func (f *files) readAt(b []byte, off int64) error {
	clear(b) // padding is zeros
	return f.span(off, len(b), func(i int, at int64, from, to int) error {
		h, err := f.take(i, false)
		if errors.Is(err, fs.ErrNotExist) {
			return io.ErrUnexpectedEOF // as of a file that ends before
		}
		if err != nil {
			return err
		}
		defer f.give(h)
		if _, err = h.ReadAt(b[from:to], at); errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
}

// mark notes whether a piece is right, and names its files accordingly.
func (f *files) mark(piece int, right bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if right {
		f.ready = append(f.ready, metainfo.PieceKey{InfoHash: f.hash, Index: piece})
	}
	if f.right[piece] == right {
		return nil
	}
	f.right[piece] = right
	off, length := f.layout.pieceRange(piece)
	return f.span(off, int(length), func(i int, _ int64, _, _ int) error {
		if right {
			f.left[i]--
		} else {
			f.left[i]++
		}
		if whole := f.left[i] == 0; whole != f.final[i] {
			return f.rename(i, whole)
		}
		return nil
	})
}

// rename gives a file its final name, or takes it away again. The caller holds f.mu.
func (f *files) rename(i int, final bool) error {
	if h := f.open[i]; h != nil {
		f.forget(h)
	}
	before := f.name(i)
	f.final[i] = final
	after := f.name(i)
	err := f.root.Rename(before, after)
	if errors.Is(err, fs.ErrNotExist) && !final {
		return nil // the file was deleted: that is why its piece is wrong
	}
	if err != nil {
		f.final[i] = !final
		return fmt.Errorf("rename %s to %s: %w", before, path.Base(after), err)
	}
	return nil
}

func (f *files) syncLoop() {
	t := time.NewTicker(syncEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := f.sync(); err != nil {
				f.log.Warn("data not synced to disk", "torrent", f.layout.Name, "error", err)
			}
		case <-f.stop:
			return
		}
	}
}

// sync brings what was written to disk, then the pieces that are right into the record. What fails is tried again.
func (f *files) sync() error {
	f.mu.Lock()
	dirty, ready := f.dirty, f.ready
	f.dirty, f.ready = map[int]bool{}, nil
	f.mu.Unlock()
	if len(ready) == 0 && len(dirty) == 0 {
		return nil
	}
	err := f.syncFiles(dirty)
	if err == nil && len(ready) > 0 {
		err = f.record.checkpoint(ready)
	}
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		for i := range dirty {
			f.dirty[i] = true
		}
		f.ready = append(ready, f.ready...)
	}
	return err
}

// syncFiles syncs them one by one if they are few, else the file system that they are on at once.
func (f *files) syncFiles(dirty map[int]bool) error {
	const few = 16
	if len(dirty) > few {
		dir, err := f.root.Open(".")
		if err != nil {
			return err
		}
		defer dir.Close()
		if err := syncFileSystem(dir); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	for i := range dirty {
		h, err := f.take(i, false)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted: its pieces will be found missing
		}
		if err != nil {
			return err
		}
		err = h.Sync()
		f.give(h)
		if err != nil {
			return fmt.Errorf("sync %s: %w", f.layout.Files[i].Path, err)
		}
	}
	return nil
}

func (f *files) close() error {
	f.writer.close()
	close(f.stop)
	f.synced.Wait()
	err := f.sync()
	f.mu.Lock()
	for _, h := range f.open {
		f.forget(h)
	}
	f.mu.Unlock()
	return errors.Join(err, f.root.Close(), f.record.seal(f.hash))
}

// piece is a piece in the engine's eyes.
type piece struct {
	files *files
	index int
	off   int64
}

func (f *files) piece(p metainfo.Piece) engine.PieceImpl {
	return piece{f, p.Index(), p.Offset()}
}

func (p piece) ReadAt(b []byte, off int64) (int, error) {
	err := p.files.writer.settle(p.index)
	if err == nil {
		err = p.files.readAt(b, p.off+off)
	}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

func (p piece) WriteAt(b []byte, off int64) (int, error) {
	if err := p.files.writer.put(p.index, b, p.off+off); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (p piece) key() metainfo.PieceKey {
	return metainfo.PieceKey{InfoHash: p.files.hash, Index: p.index}
}

func (p piece) MarkComplete() error {
	if err := p.files.record.set(p.key(), true); err != nil {
		return err
	}
	return p.files.mark(p.index, true)
}

func (p piece) MarkNotComplete() error {
	if err := p.files.mark(p.index, false); err != nil {
		return err
	}
	return p.files.record.set(p.key(), false)
}

func (p piece) Completion() engine.Completion { return p.files.record.get(p.key()) }
