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
	"runtime"
	"slices"
	"sync"
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
	anew   map[int]bool    // files that were made although they had pieces that are right: the data is gone
}

// handle is an open file. It is closed when nobody uses it and it is no longer in files.open.
type handle struct {
	*os.File
	view  *view // of the mapped file
	index int
	place *list.Element // nil: not in files.open any more
	users int
}

// openFiles opens a place for a torrent below dir. Without a system the data is read only, and all of it there.
func openFiles(dir string, l Layout, right []bool, mapped bool, sys system, wanted func(string) bool) (*files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &files{
		root: root, layout: l, system: sys, mapped: mapped,
		open: map[int]*handle{}, dirs: map[string]bool{},
		left: make([]int, len(l.Files)), right: slices.Clone(right), final: make([]bool, len(l.Files)),
		dirty: map[int]bool{}, moved: map[string]bool{}, anew: map[int]bool{},
	}
	for i, file := range l.Files {
		if sys == nil {
			f.final[i] = true
			continue
		}
		begin, end := l.FilePieces(file)
		for p := begin; p < end; p++ {
			if !right[p] {
				f.left[i]++
			}
		}
		if _, err := root.Lstat(filepath.FromSlash(file.Path)); err == nil {
			f.final[i] = true
		} else if file.Length == 0 && (wanted == nil || wanted(file.Path)) {
			if err := f.makeEmpty(i); err != nil {
				return nil, errors.Join(err, root.Close())
			}
		}
	}
	return f, nil
}

func (f *files) makeEmpty(i int) error {
	f.final[i] = true
	file, err := f.openFile(i, os.O_CREATE|os.O_WRONLY)
	if err != nil {
		return err
	}
	f.dirty[i] = true
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

// openFile opens a file, or makes it with its directories. The caller holds f.mu, except while f is being opened.
func (f *files) openFile(i, flags int) (*os.File, error) {
	name := f.name(i)
	if flags&os.O_CREATE == 0 {
		return f.root.OpenFile(name, flags, 0)
	}
	file, err := f.root.OpenFile(name, flags&^os.O_CREATE, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
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
		f.anew[i] = true
	}
	return f.root.OpenFile(name, flags, 0o644)
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
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	if f.system == nil {
		flags = os.O_RDONLY
	}
	file, err := f.openFile(i, flags)
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

// give takes a file back. One that was written to is dirty from now on: had it been so before, a sync might have come in
// between.
func (f *files) give(h *handle, written bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if written {
		f.dirty[h.index] = true
	}
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
		defer f.give(h, true)
		_, err = f.system.write(h.File, b[from:to], at)
		return err
	})
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
		defer f.give(h, false)
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

// mark gives files whose last piece became right their final name, and takes it from those that have a wrong one.
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
		if whole := f.left[i] == 0; whole != f.final[i] {
			return f.rename(i, whole)
		}
		return nil
	})
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
	clear(f.anew)
	return slices.Sorted(maps.Keys(lost)), nil
}

// isThere tells whether a file that has pieces that are right is the one that they were written to, and as long as they
// make it. The caller holds f.mu.
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
	file := f.layout.Files[i]
	begin, end := f.layout.FilePieces(file)
	for end > begin && !f.right[end-1] {
		end--
	}
	off, n := f.layout.PieceRange(end - 1)
	return !f.anew[i] && st.Size() >= min(file.Length, off+n-file.Offset), nil
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
			f.anew[i] = true
		}
		f.forget(h)
	}
	f.final[i] = final
	after := f.name(i)
	f.moved[filepath.Dir(before)] = true
	err := f.system.rename(f.root, before, after)
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

// syncFiles syncs files and directories one by one if they are few, else the file system that they are on at once.
func (f *files) syncFiles(dirty map[int]bool, moved map[string]bool) error {
	if len(dirty)+len(moved) > fewFiles {
		dir, err := f.root.Open(".")
		if err != nil {
			return err
		}
		defer dir.Close()
		if err := f.system.syncAll(dir); !errors.Is(err, errors.ErrUnsupported) {
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
		err = f.system.sync(h.File)
		f.give(h, false)
		if err != nil {
			return fmt.Errorf("sync %s: %w", f.layout.Files[i].Path, err)
		}
	}
	for name := range moved {
		dir, err := f.root.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(f.system.sync(dir), dir.Close())
		}
		if err != nil && runtime.GOOS != "windows" { // which has no such thing
			return fmt.Errorf("sync directory %s: %w", name, err)
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
