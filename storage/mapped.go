package storage

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/edsrzf/mmap-go"
)

// window is how much of a mapped file gets its room on the disk at once. One system call for that much costs less than
// a page fault for each page of it.
const window = 1 << 20

// view is a file mapped into memory up to the length that it will have. What lies beyond its present end is never
// touched, and every touch is guarded: a file that somebody cuts short, or a disk that breaks, is an error and not the
// end of the process.
type view struct {
	file   *os.File
	system system
	mem    mmap.MMap

	size  atomic.Int64 // of the file, as far as we know
	mu    sync.Mutex
	ready map[int64]bool // starts of parts that have room on the disk
}

func newView(file *os.File, length int64, sys system) (*view, error) {
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if length > math.MaxInt {
		return nil, fmt.Errorf("map %s: %d bytes do not fit into this machine's memory addresses", file.Name(), length)
	}
	prot := mmap.RDWR
	if sys == nil {
		prot = mmap.RDONLY
	}
	v := &view{file: file, system: sys, ready: map[int64]bool{}}
	if v.mem, err = mmap.MapRegion(file, int(length), prot, 0, 0); err != nil {
		return nil, fmt.Errorf("map %s: %w", file.Name(), err)
	}
	v.size.Store(st.Size())
	return v, nil
}

// write stores b. Room is made between from and to, in which b lies.
func (v *view) write(b []byte, at, from, to int64) error {
	for start := from + (at-from)/window*window; start < at+int64(len(b)); start += window {
		if err := v.makeRoom(start, min(start+window, to)); err != nil {
			return err
		}
	}
	return v.touch(at+int64(len(b)), func() { copy(v.mem[at:], b) })
}

func (v *view) makeRoom(from, to int64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ready[from] {
		return nil
	}
	if v.size.Load() < to {
		// To its full length at once, with holes: to lengthen a file takes the file system longer than a block does.
		st, err := v.file.Stat()
		full := int64(len(v.mem))
		if err == nil && st.Size() < full {
			err = v.file.Truncate(full)
		}
		if err != nil {
			return err
		}
		v.size.Store(max(full, st.Size()))
	}
	page := int64(os.Getpagesize())
	start := from / page * page
	if err := v.system.prepare(v.file, v.mem[start:to], start); err != nil {
		return err
	}
	v.ready[from] = true
	return nil
}

func (v *view) read(b []byte, at int64) error {
	if end := at + int64(len(b)); end > v.size.Load() {
		st, err := v.file.Stat()
		if err != nil {
			return err
		}
		v.size.Store(st.Size())
		if end > st.Size() {
			return fmt.Errorf("%s is too short: %w", v.file.Name(), io.ErrUnexpectedEOF)
		}
	}
	return v.touch(at+int64(len(b)), func() { copy(b, v.mem[at:]) })
}

// touch does something with the mapping up to end.
func (v *view) touch(end int64, do func()) error {
	if err := guarded(do); err != nil {
		v.mu.Lock()
		clear(v.ready)
		v.mu.Unlock()
		v.size.Store(0) // look again next time
		if st, e := v.file.Stat(); e == nil && st.Size() < end {
			return fmt.Errorf("%s was cut short: %w", v.file.Name(), io.ErrUnexpectedEOF)
		}
		return fmt.Errorf("%s: its disk is full or broken: %w", v.file.Name(), err)
	}
	return nil
}

// close ends the mapping. What was stored stays with the file; it is synced like any other.
func (v *view) close() { _ = v.mem.Unmap() }

var errFault = errors.New("a mapped page could not be had")

// guarded turns a fault in mapped memory (SIGBUS, SIGSEGV) into an error.
func guarded(do func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = errFault
		default:
			panic(r)
		}
	}()
	do()
	return nil
}
