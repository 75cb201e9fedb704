//go:build !linux

package testbed

import "syscall"

// dieWithParent: other systems have no way to tell the kernel; a killed testbed leaves its
// processes.
func dieWithParent(*syscall.SysProcAttr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
