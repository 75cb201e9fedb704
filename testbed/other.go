//go:build !linux

package testbed

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
)

// What other systems than Linux lack.

// RaisePriority does nothing here. On other systems a priority belongs to the process, and its
// children inherit it.
func RaisePriority() error { return nil }

func lowerThread() error { return nil }

// dieWithParent: other systems have no way to tell the kernel; a killed testbed leaves its
// processes.
func dieWithParent(*syscall.SysProcAttr) *syscall.SysProcAttr { return ownSession() }

// UsageOf is for Linux.
func UsageOf(int) Usage { return Usage{} }

var errNoPause = errors.New("only Linux tells when a router has stopped")

func pauseProcess(*os.Process) error { return errNoPause }

func resumeProcess(*os.Process) error { return errNoPause }

var errNoNamespaces = errors.New("hosts on IP need network namespaces, which only Linux has")

func ownNetwork() *syscall.SysProcAttr { return nil }

func socketPair() (ours, theirs *os.File, err error) { return nil, nil, errNoNamespaces }

func receiveFile(*os.File) (*os.File, error) { return nil, errNoNamespaces }

// RunInNamespace is for Linux.
func RunInNamespace(netip.Prefix, int, []string) error { return errNoNamespaces }
