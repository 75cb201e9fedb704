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

// lockWait is how long to wait for another process's lock: long enough for a process that is about
// to exit.
const lockWait = 2 * time.Second

var errLocked = errors.New("another braid is using it")

// lockDir takes the lock on a directory for downloads, which ends when the file is closed or the
// process ends.
func lockDir(dir string, exclusive bool, wait time.Duration) (*os.File, error) {
	name := filepath.Join(dir, recordDir, lockName)
	flags := os.O_RDONLY
	if exclusive {
		flags = os.O_RDWR | os.O_CREATE
	}
	f, err := durable.OpenLocked(name, flags, 0o644, wait)
	if errors.Is(err, durable.ErrInUse) {
		return nil, fmt.Errorf("%s: %w%s; wait for it, or choose another directory", dir, errLocked, holder(name))
	}
	if err != nil {
		return nil, err
	}
	if exclusive { // for messages only
		_ = f.Truncate(0)
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return f, nil
}

// maxCommand is how much of a command line is shown: enough for the command and its first
// arguments.
const maxCommand = 100

// holder names the process that has the lock. It returns "" if this process cannot see it: it may
// be another user's, or in another container.
func holder(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return ""
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	command := strings.Join(strings.Split(strings.TrimRight(string(line), "\x00"), "\x00"), " ")
	switch {
	case err != nil || command == "":
		return ""
	case len(command) > maxCommand:
		command = strings.ToValidUTF8(command[:maxCommand], "") + "…"
	}
	return fmt.Sprintf(" (process %d: %s)", pid, command)
}
