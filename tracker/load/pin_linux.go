package load

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// startPinned starts the program so that it, with all its threads, runs on that core only.
func startPinned(cmd *exec.Cmd, core int) error {
	if core < 0 {
		return cmd.Start()
	}
	// A child has the affinity of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("read the cores of this process: %w", err)
	}
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("run on core %d: %w", core, err)
	}
	defer unix.SchedSetaffinity(0, &before) //nolint:errcheck // it was so
	return cmd.Start()
}
