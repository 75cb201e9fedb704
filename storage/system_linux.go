package storage

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func syncFileSystem(f *os.File) error { return unix.Syncfs(int(f.Fd())) }

// writeError waits until the pages of a file that are being written are on disk, and returns the
// error of one that has failed and that no one was told of. It costs less than a sync, which also
// empties the cache of the disk.
func writeError(f *os.File) error {
	err := unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE)
	if errors.Is(err, unix.ENOSYS) {
		return f.Sync()
	}
	return err
}

func dropCache(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }

func deviceOf(st fs.FileInfo) uint64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return s.Dev
	}
	return 0
}
