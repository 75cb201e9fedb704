package storage

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func syncFileSystem(f *os.File) error { return unix.Syncfs(int(f.Fd())) }

func deviceOf(st fs.FileInfo) uint64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return s.Dev
	}
	return 0
}
