package storage

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"

	"github.com/edsrzf/mmap-go"
)

// view is a file mapped into memory, for reading only, up to the length that it will have. Writes
// use system calls: a store into a page that is not in memory costs several times as much, and
// cannot report a full disk. The system keeps both views the same. Pages beyond the file's present
// end are never touched, and every access is guarded: if somebody cuts the file, or the disk
// breaks, that is an error and does not end the process.
type view struct {
	file *os.File
	mem  mmap.MMap
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
	end := at + int64(len(b))
	st, err := v.file.Stat()
	if err != nil {
		return err
	}
	if end > st.Size() {
		return fmt.Errorf("%s is too short: %w", v.file.Name(), io.ErrUnexpectedEOF)
	}
	if err := guarded(func() { copy(b, v.mem[at:]) }); err != nil {
		if st, e := v.file.Stat(); e == nil && st.Size() < end {
			return fmt.Errorf("%s was cut short: %w", v.file.Name(), io.ErrUnexpectedEOF)
		}
		return fmt.Errorf("%s: its disk is full or broken: %w", v.file.Name(), err)
	}
	return nil
}

func (v *view) close() { _ = v.mem.Unmap() }

var errFault = errors.New("a page of the mapped file cannot be read")

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
