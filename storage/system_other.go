//go:build !linux

package storage

import (
	"errors"
	"os"
)

// syncFileSystem is for Linux only; elsewhere files are synced one by one.
func syncFileSystem(*os.File) error { return errors.ErrUnsupported }

// tryLock leaves it to the lock that bbolt has on the record.
func tryLock(*os.File, bool) (bool, error) { return true, nil }

func unlock(*os.File) error { return nil }
