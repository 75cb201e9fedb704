//go:build !linux

package linkemu

import (
	"errors"
	"syscall"
)

var openWire = newPortableWire

// passing tells the errors that a socket gets from the other end not being there.
func passing(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}
