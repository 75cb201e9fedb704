package storage

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	// maxOpenFiles is how many files of a torrent stay open. A download has about as many
	// unfinished pieces. With more, a process with several torrents would come near the usual limit
	// of 1024.
	maxOpenFiles = 128
	// fewFiles is up to how many files are synced one by one. For more, their whole file system is
	// synced.
	fewFiles = 16
)

// files is the data of one torrent in its final files. Their names end in .part until they are
// complete.
type files struct {
	root   *os.Root
	layout Layout
	system system // nil: the files are only read
	mapped bool   // files are mapped into memory to be read

	mu        sync.Mutex
	names     Names           // paths that have changed since the files were opened
	open      map[int]*handle // by index in layout.Files
	recent    list.List       // of *handle, the last used one in front
	missing   []int           // of each file: the number of its pieces that are not right
	final     []bool          // of each file: it has its final name, without .part
	spare     []bool          // of each file: beside it lies one of ours with .part
	dirty     map[int]bool    // files that were written to since the last sync
	unsynced  map[int]bool    // files changed by others and not read since: maybe not on disk
	dirtyDirs map[string]bool // directories in which names may have changed since, with slashes
	stamps    []stamp         // of each file: as we have found or left it; nil: unimportant
	writing   int             // the file that is being written to, whose stamp changes; -1: none
	altered   map[int]bool    // files that somebody else has changed or deleted since: their content is unknown
	unsure    bitset          // pieces that are checked again before they are served; nil: none
	changes   int             // how often a file was found changed by somebody else
	dropped   error           // of a sync, after which the system has maybe dropped data
}

// handle is an open file. It is closed when nobody uses it and it is no longer in files.open.
type handle struct {
	*os.File
	view  *view // of the mapped file
	index int
	place *list.Element // nil: it is not in files.open any more
	users int

	inspected time.Time
}

// readFiles opens the complete files of a torrent below dir for reading.
func readFiles(dir string, l Layout, mapped bool) (*files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &files{
		root: root, layout: l, mapped: mapped, names: Names{},
		open: map[int]*handle{}, dirtyDirs: map[string]bool{},
		missing: make([]int, len(l.Files)), final: slices.Repeat([]bool{true}, len(l.Files)),
		spare: make([]bool, len(l.Files)),
		dirty: map[int]bool{}, unsynced: map[int]bool{}, altered: map[int]bool{}, writing: -1,
	}, nil
}

// openFiles opens a torrent's files, of which the owned ones may be made and changed. known is what
// the record says of them.
func (s *store) openFiles(l Layout, known recorded, owned []bool) (*files, error) {
	f, err := readFiles(s.dir, l, s.kind == KindMmap)
	if err != nil {
		return nil, err
	}
	f.system, f.stamps = s.options.system, make([]stamp, len(l.Files))
	for _, i := range known.changed {
		f.unsynced[i] = true
	}
	for i := range l.Files {
		if err := f.find(i, known.pieces.right, owned[i]); err != nil {
			return nil, errors.Join(err, f.root.Close())
		}
	}
	return f, nil
}

// find looks at a file when the place is opened. A complete file gets its final name and length, in
// case braid was killed after the last piece and before it did so. Empty files are made.
func (f *files) find(i int, right []bool, owned bool) error {
	file := f.layout.Files[i]
	begin, end := f.layout.FilePieces(file)
	for p := begin; p < end; p++ {
		if !right[p] {
			f.missing[i]++
		}
	}
	f.stamps[i] = noFile
	for _, final := range []bool{true, false} {
		f.final[i] = final
		st, err := f.root.Lstat(f.name(i))
		if err == nil {
			f.stamps[i] = stampFrom(st)
			break
		}
	}
	if f.final[i] && owned {
		_, err := f.root.Lstat(filepath.FromSlash(partName(file.Path)))
		f.spare[i] = err == nil
	}
	switch {
	case f.stamps[i] != noFile && f.missing[i] == 0 && (owned || end > begin):
		return f.finish(i)
	case f.stamps[i] == noFile && file.Length == 0 && owned:
		return f.makeEmpty(i)
	}
	return nil
}

func (f *files) makeEmpty(i int) error {
	f.final[i] = true
	file, err := f.openFile(i, true)
	if err != nil {
		return err
	}
	f.dirty[i] = true
	return errors.Join(f.note(i, file), file.Close())
}

// note remembers the present stamp of a file. The caller holds f.mu, except while f is being
// opened.
func (f *files) note(i int, file *os.File) error {
	st, err := file.Stat()
	if err == nil {
		f.stamps[i] = stampFrom(st)
	}
	return err
}

// name returns the file's present name. The caller holds f.mu, except while f is being opened.
func (f *files) name(i int) string {
	n, renamed := f.names[i]
	if !renamed {
		n = f.layout.Files[i].Path
	}
	if !f.final[i] {
		n = partName(n)
	}
	return filepath.FromSlash(n)
}

// openFile opens a file, or makes it with its directories. The caller holds f.mu, except while f is
// being opened.
func (f *files) openFile(i int, create bool) (*os.File, error) {
	name := f.name(i)
	file, err := f.openOld(name)
	switch {
	case !create || err != nil && !errors.Is(err, fs.ErrNotExist):
		return file, err
	case err == nil && f.stamps[i] == noFile:
		return nil, errors.Join(f.appeared(name), file.Close())
	case err == nil:
		return file, nil
	}
	if err := f.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	f.dirtyDirs["."] = true
	for dir := range parents(filepath.ToSlash(name)) { // some of them may be new
		f.dirtyDirs[dir] = true
	}
	if f.holds(i) {
		f.altered[i] = true
	}
	file, err = f.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, f.appeared(name)
	}
	if err != nil {
		return nil, err
	}
	return file, f.note(i, file)
}

// openOld opens an existing file for reading, and for writing if the user may write to it.
func (f *files) openOld(name string) (*os.File, error) {
	st, err := f.root.Stat(name)
	if err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name) // opening a pipe may block for ever
	}
	if err != nil {
		return nil, err
	}
	if f.system != nil && !isProtected(st.Mode()) {
		file, err := f.root.OpenFile(name, os.O_RDWR, 0)
		if !errors.Is(err, fs.ErrPermission) {
			return file, err
		}
	}
	return f.root.Open(name)
}

func (f *files) appeared(name string) error {
	return fmt.Errorf("%s has appeared since the download began, and does not belong to it: "+
		"move it away, and start again", name)
}

// take returns an open file, which the caller gives back. With create a missing file is made.
func (f *files) take(i int, create bool) (*handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.open[i]; h != nil {
		f.recent.MoveToFront(h.place)
		h.users++
		f.taken(i)
		return h, nil
	}
	file, err := f.openFile(i, create)
	if err != nil {
		return nil, err
	}
	h := &handle{File: file, index: i, users: 1}
	if f.mapped && f.layout.Files[i].Length > 0 {
		if h.view, err = newView(file, f.layout.Files[i].Length); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	h.place = f.recent.PushFront(h)
	f.open[i] = h
	if f.recent.Len() > maxOpenFiles {
		f.forget(f.recent.Back().Value.(*handle))
	}
	f.taken(i)
	return h, nil
}

// taken has a file synced that others have changed, since its pieces may be found right and
// recorded now. The caller holds f.mu.
func (f *files) taken(i int) {
	if f.unsynced[i] {
		delete(f.unsynced, i)
		f.dirty[i] = true
	}
}

// give returns a file that was taken.
func (f *files) give(h *handle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.users--; h.users == 0 && h.place == nil {
		h.close()
	}
}

// forget closes a file as soon as nobody uses it. The caller holds f.mu.
func (f *files) forget(h *handle) {
	f.recent.Remove(h.place)
	h.place = nil
	delete(f.open, h.index)
	if h.users == 0 {
		h.close()
	}
}

func (h *handle) close() {
	if h.view != nil {
		h.view.close()
	}
	h.Close()
}

func (f *files) write(b []byte, off int64) error {
	return f.layout.Span(off, len(b), func(i int, at int64, from, to int) error {
		if err := f.unfinish(i); err != nil {
			return err
		}
		h, err := f.take(i, true)
		if err != nil {
			return err
		}
		defer f.give(h)
		if err := f.expect(h); err != nil {
			return err
		}
		_, err = f.system.Write(h.File, b[from:to], at)
		return errors.Join(err, f.written(h))
	})
}

// unfinish takes the final name away before a write to a file that is not complete, unless the
// write will be refused.
func (f *files) unfinish(i int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.final[i] || f.missing[i] == 0 {
		return nil
	}
	if st, err := f.root.Lstat(f.name(i)); err != nil || isProtected(st.Mode()) {
		return nil // the write itself says so
	}
	return f.rename(i, false)
}

// expect checks before a write that a file is as we left it, since nobody can tell after the write.
// A file that was cut and has grown again has the right length, but holes instead of data.
func (f *files) expect(h *handle) error {
	st, err := h.Stat()
	if err != nil {
		return err
	}
	if isProtected(st.Mode()) {
		return fmt.Errorf("%s is write-protected, and parts of it are wrong: "+
			"allow writing (chmod u+w), or move it away", h.Name())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stamps[h.index] != stampFrom(st) && f.holds(h.index) {
		f.altered[h.index] = true
	}
	f.writing = h.index
	return nil
}

// written notes the stamp of a file after a write, and that it needs a sync. Noted before the
// write, a sync in between would have cleared it.
func (f *files) written(h *handle) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirty[h.index], f.writing = true, -1
	return f.note(h.index, h.File)
}

func (f *files) stamp(i int) stamp {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.altered[i] || f.dirty[i] || f.dropped != nil {
		return noStamp
	}
	return f.stamps[i]
}

func (f *files) read(b []byte, off int64) error {
	filled := 0
	err := f.layout.Span(off, len(b), func(i int, at int64, from, to int) error {
		clear(b[filled:from]) // padding is zeros
		filled = to
		h, err := f.take(i, false)
		if err != nil {
			return err
		}
		defer f.give(h)
		if err := f.inspect(h); err != nil {
			return err
		}
		if h.view != nil {
			return h.view.read(b[from:to], at)
		}
		if _, err = h.ReadAt(b[from:to], at); errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s is too short: %w", f.layout.Files[i].Path, io.ErrUnexpectedEOF)
		}
		return err
	})
	clear(b[filled:])
	return err
}

// mark gives a file its length and final name when its last piece is right, and takes the name away
// if a piece that was right is wrong. A file of that name that is only being checked keeps it: the
// check may be stopped, and all of the file be right. So does one that somebody else has
// overwritten.
func (f *files) mark(piece int, right bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	off, length := f.layout.PieceRange(piece)
	overwritten := func(i int) bool {
		return f.altered[i] && f.stamps[i].size >= f.layout.Files[i].Length
	}
	var errs error
	_ = f.layout.Span(off, int(length), func(i int, _ int64, _, _ int) error {
		if right {
			f.missing[i]--
		} else {
			f.missing[i]++
		}
		switch {
		case f.missing[i] == 0:
			errs = errors.Join(errs, f.finish(i))
		case f.final[i] && !right && !overwritten(i):
			errs = errors.Join(errs, f.rename(i, false))
		}
		return nil // the piece must be counted in all its files
	})
	return errs
}

// finish gives a complete file its length and its final name: a file from before the download may
// be too long. The caller holds f.mu, except while f is being opened.
func (f *files) finish(i int) error {
	if length := f.layout.Files[i].Length; f.stamps[i].size > length {
		if err := f.cut(i, length); err != nil {
			return fmt.Errorf("cut %s to the length that it should have: %w", f.layout.Files[i].Path, err)
		}
	}
	if f.final[i] {
		return nil
	}
	return f.rename(i, true)
}

func (f *files) cut(i int, length int64) error {
	file, err := f.root.OpenFile(f.name(i), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	st, err := file.Stat()
	if err == nil && isProtected(st.Mode()) {
		err = errors.New("it is write-protected: allow writing (chmod u+w), or move it away")
	}
	if err == nil && st.Size() > length {
		err = file.Truncate(length)
		f.dirty[i] = true
	}
	if err == nil {
		err = f.note(i, file)
	}
	return errors.Join(err, file.Close())
}

// holds tells whether a file has right pieces. The caller holds f.mu, except while f is being
// opened.
func (f *files) holds(i int) bool {
	begin, end := f.layout.FilePieces(f.layout.Files[i])
	return f.missing[i] < end-begin
}

func (f *files) lostPieces() (pieces []int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped != nil {
		return nil, f.dropped
	}
	lost := map[int]bool{}
	for i, file := range f.layout.Files {
		if !f.holds(i) {
			continue
		}
		there, err := f.isThere(i)
		if err != nil {
			return nil, err
		}
		if there {
			if f.missing[i] == 0 {
				if err := f.finish(i); err != nil {
					return nil, err
				}
			}
			continue
		}
		if h := f.open[i]; h != nil {
			f.forget(h) // it is of a deleted file
		}
		f.unsynced[i] = true
		begin, end := f.layout.FilePieces(file)
		for p := begin; p < end; p++ {
			lost[p] = true
		}
	}
	clear(f.altered)
	return slices.Sorted(maps.Keys(lost)), nil
}

// isThere tells whether a file with right pieces is as we left it. From now on its present state is
// expected. The caller holds f.mu.
func (f *files) isThere(i int) (bool, error) {
	st, err := f.root.Lstat(f.name(i))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if h := f.open[i]; h != nil {
		if same, err := f.isNamed(h, f.name(i)); err != nil || !same {
			return false, err
		}
	}
	if now := stampFrom(st); now != f.stamps[i] && i != f.writing {
		f.stamps[i], f.altered[i] = now, true // also for the next attempt, if this one fails
	}
	return !f.altered[i], nil
}

// isNamed tells whether an open file still has the name, and not another file.
func (f *files) isNamed(h *handle, name string) (bool, error) {
	st, err := f.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	own, err := h.Stat()
	return err == nil && os.SameFile(st, own), err
}

// rename gives a file its final name, or takes it away again. The caller holds f.mu.
func (f *files) rename(i int, final bool) error {
	before := f.name(i)
	if h := f.open[i]; h != nil {
		if same, err := f.isNamed(h, before); err == nil && !same {
			f.altered[i] = true
		}
		f.forget(h)
	}
	if st, err := f.root.Lstat(before); err == nil && !st.Mode().IsRegular() {
		return nil // it is somebody else's, and the next write says so
	}
	f.final[i] = final
	after := f.name(i)
	_, err := f.root.Lstat(after)
	taken := !errors.Is(err, fs.ErrNotExist)
	if taken && !final { // it may be our file, to which somebody else has given that name
		_, gone := f.root.Lstat(before)
		taken = !f.spare[i] && !errors.Is(gone, fs.ErrNotExist)
	}
	if taken {
		f.final[i] = !final
		return errors.Join(err, f.appeared(after))
	}
	f.dirtyDirs[path.Dir(filepath.ToSlash(before))] = true
	err = f.system.Rename(f.root, before, after)
	if errors.Is(err, fs.ErrNotExist) && !final {
		return nil // the file was deleted, and so its piece is wrong
	}
	if err != nil {
		f.final[i] = !final
		return fmt.Errorf("rename %s to %s: %w", before, path.Base(after), err)
	}
	f.spare[i] = false
	return nil
}

func (f *files) close() error {
	f.mu.Lock()
	for _, h := range f.open {
		f.forget(h)
	}
	f.mu.Unlock()
	return f.root.Close()
}
