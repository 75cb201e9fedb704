//go:build unix

package bench

import (
	"syscall"
	"time"
)

// CPUTime returns the CPU seconds that this process has used, user and system.
func CPUTime() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
