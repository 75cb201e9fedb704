//go:build unix

package commands

import (
	"os"
	"syscall"
)

// isPrivate tells whether a directory belongs to this user, and nobody else may write into it.
func isPrivate(dir string) bool {
	st, err := os.Lstat(dir)
	if err != nil || !st.IsDir() || st.Mode().Perm()&0o022 != 0 {
		return false
	}
	s, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Getuid()
}
