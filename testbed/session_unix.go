//go:build unix

package testbed

import "syscall"

// ownSession keeps a terminal's signals from a process.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
