//go:build !linux

package client

import (
	"errors"
	"net"
	"syscall"
)

// measureTCP knows nothing where the kernel has no portable way to say it.
func measureTCP(*net.TCPConn) Measurement { return Measurement{} }

func setTCPCongestion(syscall.RawConn, string) error { return nil }

// hasTCPCongestion allows the default only.
func hasTCPCongestion(name string) error {
	if name != "" {
		return errors.New("TCP's congestion controller can be chosen on Linux only")
	}
	return nil
}
