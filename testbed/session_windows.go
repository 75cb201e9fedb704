package testbed

import "syscall"

// ownSession keeps a terminal's signals from a process.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
