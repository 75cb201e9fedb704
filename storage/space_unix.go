//go:build unix

package storage

import "golang.org/x/sys/unix"

// DiskSpace returns how many bytes of a directory's file system are free to users, and its size.
func DiskSpace(dir string) (free, total int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil
}
