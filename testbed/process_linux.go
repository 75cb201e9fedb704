package testbed

import "syscall"

// dieWithParent also puts the process into a group of its own: a Ctrl-C on the terminal is for
// braid, which then stops its processes in order.
func dieWithParent(a *syscall.SysProcAttr) *syscall.SysProcAttr {
	if a == nil {
		a = &syscall.SysProcAttr{}
	}
	a.Setpgid, a.Pdeathsig = true, syscall.SIGKILL
	return a
}
