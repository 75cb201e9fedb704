//go:build !linux

package storage

import (
	"errors"
	"os"
)

// syncFileSystem is for Linux only; elsewhere files are synced one by one.
func syncFileSystem(*os.File) error { return errors.ErrUnsupported }
