package testbed

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// above is the number of nice levels by which RaisePriority raises this process above its children.
const above = 10

// raised says that this process has raised its priority.
var raised atomic.Bool

// RaisePriority raises this process above others if it may (as root), because its emulated links
// must send each packet in time. Only the first call does anything. Processes inherit their parent's
// priority, so launchers lower that of theirs again.
var RaisePriority = sync.OnceValue(func() error {
	threads, err := procfs.AllThreads(os.Getpid()) // each has its priority, and new threads inherit it
	for i := 0; i < len(threads) && err == nil; i++ {
		err = reniceThread(threads[i].PID, -above)
	}
	if err != nil {
		return fmt.Errorf("raise priority: %w", err)
	}
	raised.Store(true)
	return nil
})

// lowerThread gives the calling thread, which must be locked, the priority from before
// RaisePriority.
func lowerThread() error {
	if !raised.Load() {
		return nil
	}
	return reniceThread(0, above)
}

// reniceThread changes the nice level of a thread; 0 is the calling one, which must be locked.
func reniceThread(tid, by int) error {
	p, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err != nil {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, tid, 20-p+by) // the system call's result is 20 less the nice level
}
