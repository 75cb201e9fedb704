package testbed

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// raised is by how much, in nice levels, RaisePriority puts this process before those that it starts.
const raised = 10

// RaisePriority puts this process, whose emulated links must send each packet in time, before others where it may do so: as root. It
// tells whether it has. Launchers must know of it, since processes inherit their parent's priority.
func RaisePriority() (bool, error) {
	tasks, err := os.ReadDir("/proc/self/task") // a priority is each thread's own; later threads have that of whoever starts them
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
}

// lowerThread takes the calling thread, which must be locked, back.
func lowerThread() error { return reniceThread(0, raised) }

func reniceThread(tid, by int) error {
	p, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err != nil {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, tid, 20-p+by) // the system call's result is 20 less the nice level
}
