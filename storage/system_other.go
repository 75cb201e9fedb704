//go:build !linux

package storage

import (
	"errors"
	"os"
)

// syncFileSystem is for Linux only; elsewhere files are synced one by one.
func syncFileSystem(*os.File) error { return errors.ErrUnsupported }

// prepare has nothing that it could do; the store into the mapping is guarded.
func prepare(*os.File, []byte, int64) error { return nil }

// tryLock leaves it to the lock that bbolt has on the record.
func tryLock(*os.File, bool) (bool, error) { return true, nil }

func unlock(*os.File) error { return nil }
