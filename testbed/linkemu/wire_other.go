//go:build !linux

package linkemu

import (
	"errors"
	"syscall"
	"time"
)

var openWire = newPortableWire

// passing tells the errors that a socket gets from the other end not being there.
func passing(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

// threadCPU is 0 where it is not known.
func threadCPU() time.Duration { return 0 }
