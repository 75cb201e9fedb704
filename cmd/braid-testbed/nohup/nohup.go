// Package nohup knows whether braid was started with SIGHUP ignored, as nohup does. A library
// (scionproto's private/env) catches SIGHUP when it is initialized. From then on, the system no
// longer tells whether the signal was ignored. Go initializes packages in the order of their import
// paths as far as dependencies allow: this package depends on the standard library only, and comes
// before those of other modules.
package nohup

import (
	"os/signal"
	"syscall"
)

var ignored = signal.Ignored(syscall.SIGHUP)

// Ignored tells whether SIGHUP must go on to be ignored.
func Ignored() bool { return ignored }
