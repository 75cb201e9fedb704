package testbed

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// raised is the number of nice levels by which RaisePriority raises this process above its
// children.
const raised = 10

// RaisePriority raises this process above others if it may (as root), because its emulated links
// must send each packet in time. It tells whether it has; only the first call does anything.
// Launchers must know that, because processes inherit their parent's priority.
var RaisePriority = sync.OnceValues(func() (bool, error) {
	tasks, err := os.ReadDir("/proc/self/task") // each thread has its priority, and new threads inherit it
	if err != nil {
		return false, fmt.Errorf("raise priority: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err == nil {
			err = reniceThread(tid, -raised)
		}
		if err != nil {
			return false, fmt.Errorf("raise priority: %w", err)
		}
	}
	return true, nil
})

// lowerThread undoes that for the calling thread, which must be locked.
func lowerThread() error { return reniceThread(0, raised) }

func reniceThread(tid, by int) error {
	p, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err != nil {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, tid, 20-p+by) // the system call's result is 20 less the nice level
}
