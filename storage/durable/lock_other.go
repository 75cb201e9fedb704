//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package durable

import "os"

// tryLock succeeds always: this system has no such lock.
func tryLock(*os.File, bool) (bool, error) { return true, nil }

// Unlock does nothing.
func Unlock(*os.File) error { return nil }
