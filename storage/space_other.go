//go:build !unix

package storage

import "errors"

// DiskSpace fails: see space_unix.go.
func DiskSpace(string) (free, total int64, err error) {
	return 0, 0, errors.New("the free space is not known on this system")
}
