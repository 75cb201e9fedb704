//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package durable

import "os"

// TryLock succeeds always: this system has no such lock.
func TryLock(*os.File, bool) (bool, error) { return true, nil }

// Unlock does nothing.
func Unlock(*os.File) error { return nil }
