//go:build unix

package storage

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DiskSpace returns how many bytes of a directory's file system are free to users, and its size. If
// the directory does not exist, it is about its nearest parent.
func DiskSpace(dir string) (free, total int64, err error) {
	var s unix.Statfs_t
	err = unix.Statfs(dir, &s)
	if up := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && up != dir {
		return DiskSpace(up)
	}
	if err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil
}
