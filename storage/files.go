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

	"braid/storage/durable"
)

const (
	// maxOpenFiles is how many files of a torrent are kept open. Downloads have about as many pieces under
	// way; more would come near the usual limit of 1024 for a process with several torrents.
	maxOpenFiles = 128
	// fewFiles are synced one by one; more of them with the file system that they are on.
	fewFiles = 16
)

// files is the data of one torrent in its final files, which end in .part until they are complete.
type files struct {
	root   *os.Root
	layout Layout
	system system
	mapped bool // the files are read through memory

	mu     sync.Mutex
	open   map[int]*handle // by index in layout.Files
	recent list.List       // of *handle, the one used last in front
	dirs   map[string]bool // that are known to be there
	left   []int           // of each file: pieces that are not right
	right  []bool          // of each piece
	final  []bool          // of each file: it has its final name
	dirty  map[int]bool    // files written to since they were synced
	moved  map[string]bool // directories with new names in them since they were synced
	stamps []stamp         // of each file: as we have found it, or left it
	lost   map[int]bool    // files that somebody else has changed, or taken away, since: what they hold is not known
}

// handle is an open file. It is closed when nobody uses it and it is no longer in files.open.
type handle struct {
	*os.File
	view  *view // of the mapped file
	index int
	place *list.Element // nil: not in files.open any more
	users int
}

// openFiles opens a place for a torrent below dir, of which the files in mine may be made and changed. Without a system the
// data is read only, and all of it there.
func openFiles(dir string, l Layout, right []bool, mapped bool, sys system, mine []bool) (*files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &files{
		root: root, layout: l, system: sys, mapped: mapped,
		open: map[int]*handle{}, dirs: map[string]bool{},
		left: make([]int, len(l.Files)), right: slices.Clone(right), final: make([]bool, len(l.Files)),
		dirty: map[int]bool{}, moved: map[string]bool{}, stamps: make([]stamp, len(l.Files)), lost: map[int]bool{},
	}
	for i := range l.Files {
		if sys == nil {
			f.final[i] = true
		} else if err := f.find(i, mine[i]); err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	return f, nil
}

// find looks at a file when the place is opened. One that is complete gets its final name and length: that is done with its
// last piece, and if braid ended in between, nobody would. Empty files are made.
func (f *files) find(i int, mine bool) error {
	file := f.layout.Files[i]
	begin, end := f.layout.FilePieces(file)
	for p := begin; p < end; p++ {
		if !f.right[p] {
			f.left[i]++
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
	switch {
	case f.stamps[i] != noFile && f.left[i] == 0 && (mine || end > begin):
		return f.finish(i)
	case f.stamps[i] == noFile && file.Length == 0 && mine:
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

// note remembers how a file is. The caller holds f.mu, except while f is being opened.
func (f *files) note(i int, file *os.File) error {
	st, err := file.Stat()
	if err == nil {
		f.stamps[i] = stampFrom(st)
	}
	return err
}

// name is the file's present name. The caller holds f.mu, except while f is being opened.
func (f *files) name(i int) string {
	n := filepath.FromSlash(f.layout.Files[i].Path)
	if !f.final[i] {
		n += partSuffix
	}
	return n
}

// openFile opens a file, or makes it with its directories. The caller holds f.mu, except while f is being opened.
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
	for dir := filepath.Dir(name); !f.dirs[dir]; dir = filepath.Dir(dir) {
		if err := f.root.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		f.dirs[dir], f.moved[dir] = true, true
		if dir == "." {
			break
		}
	}
	f.moved[filepath.Dir(name)] = true
	if f.holds(i) {
		f.lost[i] = true
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

// openOld opens a file to be read, and to be written to if the user may.
func (f *files) openOld(name string) (*os.File, error) {
	st, err := f.root.Stat(name)
	if err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name) // to open a pipe may wait for ever
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
	return fmt.Errorf("%s has appeared since the download began, and is not its own: move it away, and start again", name)
}

// take returns the file, open; create says whether it is made if it is not there. The caller gives it back.
func (f *files) take(i int, create bool) (*handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.open[i]; h != nil {
		f.recent.MoveToFront(h.place)
		h.users++
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
	return h, nil
}

// give takes a file back.
func (f *files) give(h *handle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.users--; h.users == 0 && h.place == nil {
		h.close()
	}
}

// forget takes a file out of the open ones. The caller holds f.mu.
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
	return f.layout.span(off, len(b), func(i int, at int64, from, to int) error {
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

// expect looks, before a file is written to, whether it is as we left it: after the write nobody could tell any more. A file
// that was cut and has grown again has its length, and holes for data.
func (f *files) expect(h *handle) error {
	st, err := h.Stat()
	if err != nil {
		return err
	}
	if isProtected(st.Mode()) {
		return fmt.Errorf("%s is write-protected, and not all of it is right: allow writing (chmod u+w), or move it away", h.Name())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stamps[h.index] != stampFrom(st) && f.holds(h.index) {
		f.lost[h.index] = true
	}
	return nil
}

// written notes how a file was left. It is dirty from now on: had it been so before the write, a sync might have come in
// between.
func (f *files) written(h *handle) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirty[h.index] = true
	return f.note(h.index, h.File)
}

func (f *files) stamp(i int) stamp {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost[i] {
		return noStamp
	}
	return f.stamps[i]
}

func (f *files) read(b []byte, off int64) error {
	told := 0
	err := f.layout.span(off, len(b), func(i int, at int64, from, to int) error {
		clear(b[told:from]) // padding is zeros
		told = to
		h, err := f.take(i, false)
		if err != nil {
			return err
		}
		defer f.give(h)
		if h.view != nil {
			return h.view.read(b[from:to], at)
		}
		if _, err = h.ReadAt(b[from:to], at); errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s is too short: %w", f.layout.Files[i].Path, io.ErrUnexpectedEOF)
		}
		return err
	})
	clear(b[told:])
	return err
}

// mark gives files whose last piece became right their length and final name, and takes the name from those that have a wrong
// piece.
func (f *files) mark(piece int, right bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.right[piece] == right {
		return nil
	}
	f.right[piece] = right
	off, length := f.layout.PieceRange(piece)
	return f.layout.span(off, int(length), func(i int, _ int64, _, _ int) error {
		if right {
			f.left[i]--
		} else {
			f.left[i]++
		}
		switch {
		case f.left[i] == 0:
			return f.finish(i)
		case f.final[i]:
			return f.rename(i, false)
		}
		return nil
	})
}

// finish gives a file that is complete its length and its final name. It may be longer from an earlier use. The caller holds
// f.mu, except while f is being opened.
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

// holds tells whether a file has a part in pieces that are right. The caller holds f.mu, except while f is being opened.
func (f *files) holds(i int) bool {
	begin, end := f.layout.FilePieces(f.layout.Files[i])
	return f.left[i] < end-begin
}

func (f *files) gone() (pieces []int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
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
			if f.left[i] == 0 {
				if err := f.finish(i); err != nil {
					return nil, err
				}
			}
			continue
		}
		if h := f.open[i]; h != nil {
			f.forget(h) // of a file without a name
		}
		begin, end := f.layout.FilePieces(file)
		for p := begin; p < end; p++ {
			if f.right[p] {
				lost[p] = true
			}
		}
	}
	clear(f.lost)
	return slices.Sorted(maps.Keys(lost)), nil
}

// isThere tells whether a file that has pieces that are right is as we left it. If not, it is looked at from now on as it is.
// The caller holds f.mu.
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
	was := f.stamps[i]
	f.stamps[i] = stampFrom(st)
	return !f.lost[i] && f.stamps[i] == was, nil
}

// isNamed tells whether an open file is the one that has the name now.
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
			f.lost[i] = true
		}
		f.forget(h)
	}
	f.final[i] = final
	after := f.name(i)
	if _, err := f.root.Lstat(after); final && !errors.Is(err, fs.ErrNotExist) {
		f.final[i] = false
		return errors.Join(err, f.appeared(after))
	}
	f.moved[filepath.Dir(before)] = true
	err := f.system.Rename(f.root, before, after)
	if errors.Is(err, fs.ErrNotExist) && !final {
		return nil // the file was deleted: that is why its piece is wrong
	}
	if err != nil {
		f.final[i] = !final
		return fmt.Errorf("rename %s to %s: %w", before, path.Base(after), err)
	}
	return nil
}

func (f *files) sync() ([]int, error) {
	f.mu.Lock()
	dirty, moved := f.dirty, f.moved
	f.dirty, f.moved = map[int]bool{}, map[string]bool{}
	f.mu.Unlock()
	if len(dirty)+len(moved) == 0 {
		return nil, nil
	}
	if err := f.syncFiles(dirty, moved); err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		maps.Copy(f.dirty, dirty)
		maps.Copy(f.moved, moved)
		return nil, err
	}
	return slices.Collect(maps.Keys(dirty)), nil
}

// syncFiles syncs files and directories one by one if they are few, else all of the file systems that they are on.
func (f *files) syncFiles(dirty map[int]bool, moved map[string]bool) error {
	if len(dirty)+len(moved) > fewFiles {
		if err := f.syncSystems(dirty, moved); !errors.Is(err, errors.ErrUnsupported) {
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
		err = f.system.Sync(h.File)
		f.give(h)
		if err != nil {
			return fmt.Errorf("sync %s: %w", f.layout.Files[i].Path, err)
		}
	}
	for name := range moved {
		if err := durable.SyncDir(f.system, f.root, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sync directory %s: %w", name, err)
		}
	}
	return nil
}

// syncSystems syncs the file systems that files and directories are on: another one may be mounted below the root.
func (f *files) syncSystems(dirty map[int]bool, moved map[string]bool) error {
	names := slices.Collect(maps.Keys(moved))
	f.mu.Lock()
	for i := range dirty {
		names = append(names, f.name(i))
	}
	f.mu.Unlock()
	synced := map[uint64]bool{}
	for _, name := range names {
		st, err := f.root.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, or renamed just now, which the next sync sees to
		}
		if err != nil {
			return err
		}
		if device := deviceOf(st); !synced[device] {
			synced[device] = true
			file, err := f.root.Open(name)
			if err == nil {
				err = errors.Join(f.system.syncAll(file), file.Close())
			}
			if err != nil {
				return fmt.Errorf("sync the file system of %s: %w", name, err)
			}
		}
	}
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
