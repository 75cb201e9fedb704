package storage

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncFileSystem syncs the file system that f is on.
func syncFileSystem(f *os.File) error { return unix.Syncfs(int(f.Fd())) }
