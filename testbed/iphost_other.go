//go:build !linux

package testbed

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
)

var errNoNamespaces = errors.New("hosts on IP need network namespaces, which only Linux has")

func ownNetwork() *syscall.SysProcAttr { return nil }

func socketPair() (ours, theirs *os.File, err error) { return nil, nil, errNoNamespaces }

func receiveFile(*os.File) (*os.File, error) { return nil, errNoNamespaces }

// RunInNamespace is for Linux.
func RunInNamespace(netip.Prefix, int, []string) error { return errNoNamespaces }
