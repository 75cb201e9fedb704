package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"braid/storage/durable"
)

const lockName = "lock"

// lockWait is how long to wait for another process's lock: long enough for a process that is about to exit.
const lockWait = 2 * time.Second

var errLocked = errors.New("another braid is using it")

// lockDir takes the lock on a directory for downloads, which ends when the file is closed or the process is killed.
func lockDir(dir string, exclusive bool, wait time.Duration) (*os.File, error) {
	name := filepath.Join(dir, recordDir, lockName)
	flags := os.O_RDONLY
	if exclusive {
		flags = os.O_RDWR | os.O_CREATE
	}
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		switch ok, err := durable.TryLock(f, exclusive); {
		case err != nil:
			return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
		case ok:
			if exclusive {
				writeHolder(f)
			}
			return f, nil
		case !time.Now().Before(deadline):
			return nil, errors.Join(fmt.Errorf("%s: %w%s; wait for it, or choose another directory", dir, errLocked, holder(f)), f.Close())
		}
	}
}

// writeHolder says in the lock's file which process has it, for a message to people. Nothing depends on it.
func writeHolder(f *os.File) {
	_ = f.Truncate(0)
	_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
}

// maxCommand is how much of a command line is shown: enough for the command and its first arguments.
const maxCommand = 100

// holder names the process that has the lock, as far as that is known: it may be another user's, or in another container.
func holder(f *os.File) string {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return ""
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	command := strings.Join(strings.Split(strings.TrimRight(string(line), "\x00"), "\x00"), " ")
	switch {
	case err != nil || command == "":
		return "" // the process is not one of those that this one sees, so that its number says nothing
	case len(command) > maxCommand:
		command = strings.ToValidUTF8(command[:maxCommand], "") + "…"
	}
	return fmt.Sprintf(" (process %d: %s)", pid, command)
}
