// Package durable writes files so that a crash or a power loss leaves them whole, and notices
// damage to them.
//
// A file is either small, and replaced as a whole (Replace, Seal), or a log, which grows and is
// rewritten now and then (Log).
package durable

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// System is what decides what survives a crash. Tests replace the operating system with one that
// forgets what was not synced.
type System interface {
	Write(f *os.File, b []byte, off int64) (int, error)
	Rename(in *os.Root, from, to string) error
	// Sync brings a file, or the names in a directory, to disk.
	Sync(f *os.File) error
}

// OS is the operating system.
type OS struct{}

func (OS) Write(f *os.File, b []byte, off int64) (int, error) { return f.WriteAt(b, off) }
func (OS) Rename(in *os.Root, from, to string) error          { return in.Rename(from, to) }
func (OS) Sync(f *os.File) error                              { return f.Sync() }

// ErrDamaged is in errors about files whose content is not what was written to them.
var ErrDamaged = errors.New("damaged file")

// AsideSuffix is that of a damaged file that was set aside. There is one at most for a name, so
// that they do not fill the disk.
const AsideSuffix = ".damaged"

// ErrInUse is in errors about files that another process has open.
var ErrInUse = errors.New("another process has it open")

// lockPoll is how often another process's lock is tried again.
const lockPoll = 50 * time.Millisecond

// OpenLocked opens a file with a lock that ends when the file is closed or the process ends; a file
// that is only read may have several readers. It waits that long for another process that has the
// lock.
func OpenLocked(name string, flags int, mode fs.FileMode, wait time.Duration) (*os.File, error) {
	f, err := os.OpenFile(name, flags, mode)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(lockPoll) {
		locked, err := tryLock(f, flags&os.O_RDWR != 0)
		if locked {
			return f, nil
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
		}
		if !time.Now().Before(deadline) {
			return nil, errors.Join(ErrInUse, f.Close())
		}
	}
}

// newSuffix is that of a file that is being written.
const newSuffix = ".part"

// Replace writes a file so that a crash leaves its old content or the new one. One process at a
// time may do so. Missing directories are made.
func Replace(sys System, root *os.Root, name string, b []byte) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := replace(sys, root, name, func(f *os.File) error {
		_, err := sys.Write(f, b, 0)
		return err
	})
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	return err
}

// replace returns the new file, open; with an error if it has the name and a crash may take that
// back, or no file.
func replace(sys System, root *os.Root, name string, write func(*os.File) error) (*os.File, error) {
	f, err := root.Create(name + newSuffix)
	if err != nil {
		return nil, err
	}
	if err = write(f); err == nil {
		err = sys.Sync(f)
	}
	if err == nil {
		err = sys.Rename(root, name+newSuffix, name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), root.Remove(name+newSuffix)) // its data may be what fills the disk
	}
	return f, SyncDir(sys, root, filepath.Dir(name))
}

// SyncDir brings the names in a directory to disk.
func SyncDir(sys System, root *os.Root, name string) error {
	dir, err := root.Open(name)
	if err == nil {
		err = errors.Join(sys.Sync(dir), dir.Close())
	}
	if runtime.GOOS == "windows" && !errors.Is(err, fs.ErrNotExist) { // where directories cannot be synced
		return nil
	}
	return err
}

// Seal puts a checksum (SHA-256) before the content of a file. magic names the kind and version of
// the file.
func Seal(magic string, body []byte) []byte {
	sum := sha256.Sum256(body)
	return slices.Concat([]byte(magic), sum[:], body)
}

// Unseal returns the content, or ErrDamaged.
func Unseal(magic string, b []byte) ([]byte, error) {
	b, ok := bytes.CutPrefix(b, []byte(magic))
	if !ok || len(b) < sha256.Size || sha256.Sum256(b[sha256.Size:]) != [sha256.Size]byte(b) {
		return nil, ErrDamaged
	}
	return b[sha256.Size:], nil
}
