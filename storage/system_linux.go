package storage

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncFileSystem syncs the file system that f is on.
func syncFileSystem(f *os.File) error { return unix.Syncfs(int(f.Fd())) }

// prepare takes blocks of the disk for a part of a mapped file, where storing into it would otherwise end the process
// with SIGBUS if there were none.
func prepare(f *os.File, mapped []byte, off int64) error {
	err := unix.Madvise(mapped, unix.MADV_POPULATE_WRITE) // takes blocks and faults the pages in, all in one go
	if err == nil {
		return nil
	}
	// An old kernel does not know that; or there is no room, which only the other call says.
	if e := unix.Fallocate(int(f.Fd()), 0, off, int64(len(mapped))); e != nil && !errors.Is(e, unix.EOPNOTSUPP) {
		return &os.PathError{Op: "allocate", Path: f.Name(), Err: e}
	} else if e == nil && errors.Is(err, unix.EINVAL) {
		return nil
	}
	return &os.PathError{Op: "allocate", Path: f.Name(), Err: err}
}

// tryLock locks an open file for this process, without waiting. It is false if another one has it.
func tryLock(f *os.File, exclusive bool) (bool, error) {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// unlock ends every lock on an open file.
func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }
