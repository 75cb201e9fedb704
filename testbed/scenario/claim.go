package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"braid/storage/durable"
)

// A runner owns two directories: the run directory, and one for temporary files. A file in each is
// locked (flock(2)) as long as the runner lives, so the lock goes however the runner ends.
const (
	claimFile     = "lock"
	scratchPrefix = "braid-scenario-"
)

// claim takes a directory for this process until the file is closed.
func claim(dir string) (*os.File, error) {
	f, err := durable.OpenLocked(filepath.Join(dir, claimFile), os.O_RDWR|os.O_CREATE, 0o644, 0)
	if errors.Is(err, durable.ErrInUse) {
		err = fmt.Errorf("%s: another braid is running scenarios there: wait for it, or choose another directory", dir)
	}
	return f, err
}

// newScratch makes a directory for temporary files, and removes those that killed runners left
// behind.
func newScratch(temp string) (dir string, held *os.File, err error) {
	old, err := filepath.Glob(filepath.Join(temp, scratchPrefix+"*", claimFile))
	if err != nil {
		return "", nil, err
	}
	for _, name := range old {
		// If it cannot be locked or removed, it belongs to a runner that is at work, or to another
		// user.
		if f, err := claim(filepath.Dir(name)); err == nil {
			_ = os.RemoveAll(filepath.Dir(name))
			f.Close()
		}
	}
	// It gets its name only once it is locked, because another runner may be looking for leftovers.
	made, err := os.MkdirTemp(temp, "new-"+scratchPrefix)
	if err != nil {
		return "", nil, err
	}
	if held, err = claim(made); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(made))
	}
	dir = filepath.Join(temp, filepath.Base(made)[len("new-"):])
	if err := os.Rename(made, dir); err != nil {
		return "", nil, errors.Join(err, held.Close(), os.RemoveAll(made))
	}
	return dir, held, nil
}
