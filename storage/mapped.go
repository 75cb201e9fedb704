package storage

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/edsrzf/mmap-go"
)

// view is a file mapped into memory up to the length that it will have, to be read. It is written to like any other file:
// a store into a page that is not in memory yet costs several times what the system call does, and cannot say that the
// disk is full. The system keeps both the same. What lies beyond the file's present end is never touched, and every touch
// is guarded: a file that somebody cuts short, or a disk that breaks, is an error and not the end of the process.
type view struct {
	file *os.File
	mem  mmap.MMap
	size atomic.Int64 // of the file, as far as we know
}

func newView(file *os.File, length int64) (*view, error) {
	if length > math.MaxInt {
		return nil, fmt.Errorf("map %s: %d bytes do not fit into this machine's memory addresses", file.Name(), length)
	}
	mem, err := mmap.MapRegion(file, int(length), mmap.RDONLY, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", file.Name(), err)
	}
	return &view{file: file, mem: mem}, nil
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
		v.size.Store(0) // look again next time
		if st, e := v.file.Stat(); e == nil && st.Size() < end {
			return fmt.Errorf("%s was cut short: %w", v.file.Name(), io.ErrUnexpectedEOF)
		}
		return fmt.Errorf("%s: its disk is full or broken: %w", v.file.Name(), err)
	}
	return nil
}

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
