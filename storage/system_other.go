//go:build !linux

package storage

import (
	"errors"
	"io/fs"
	"os"
)

// syncFileSystem is for Linux only; elsewhere files are synced one by one.
func syncFileSystem(*os.File) error { return errors.ErrUnsupported }

func writeError(*os.File) error { return nil }

func dropCache(*os.File) {}

func deviceOf(fs.FileInfo) uint64 { return 0 }
