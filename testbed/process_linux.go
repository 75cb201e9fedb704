package testbed

import "syscall"

// dieWithParent also puts the process into a group of its own: a Ctrl-C on the terminal is for braid,
// which then stops its processes in order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
