// Package boltdb opens bbolt databases whose file may be damaged in any way.
//
// bbolt trusts its file: on a damaged one it panics, in a goroutine of its own too, reads outside of its memory, or follows
// pages in a circle and never ends. Here the file is checked before bbolt sees it, and what goes wrong later is an error.
package boltdb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"braid/storage/durable"
)

var (
	// ErrDamaged is in errors about a file that bbolt must not be let at, or in which it has failed.
	ErrDamaged = errors.New("damaged database")
	// ErrInUse is in errors about a database that somebody else has open.
	ErrInUse = durable.ErrInUse
)

// lockPoll is how often a lock of somebody else is tried again. Less often, and a start waits for nothing.
const lockPoll = 50 * time.Millisecond

// DB is an open database. Its View and Update return ErrDamaged where bbolt's would panic.
type DB struct {
	db     *bbolt.DB
	file   *os.File
	broken atomic.Bool // bbolt has panicked, maybe with its locks held: it must not be called again
}

// Open opens or makes a database, and waits for its lock as long as opts say. The file is checked under that lock: while
// somebody writes, the pages of a good database may look wrong. A damaged file is set aside, which the caller is told, and
// a new database made; without damaged, or for reading only, the error is ErrDamaged.
func Open(name string, mode fs.FileMode, opts *bbolt.Options, damaged func(aside string, err error)) (*DB, error) {
	d := &DB{}
	o := *opts
	o.OpenFile = func(name string, flags int, mode fs.FileMode) (*os.File, error) {
		deadline := time.Now().Add(o.Timeout)
		for {
			f, err := openLocked(name, flags, mode, deadline)
			if err != nil {
				return nil, err
			}
			if err = check(f); err == nil {
				d.file = f
				return f, nil
			}
			aside := ""
			if errors.Is(err, ErrDamaged) && damaged != nil && !o.ReadOnly {
				var e error
				if aside, e = setAside(name); e != nil {
					err = errors.Join(err, e)
				}
			}
			err = errors.Join(err, f.Close())
			if aside == "" {
				return nil, err
			}
			damaged(aside, err)
		}
	}
	err := d.guard(func() (err error) {
		d.db, err = bbolt.Open(name, mode, &o)
		return err
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		err = ErrInUse
	}
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", name, err)
	}
	return d, nil
}

// openLocked opens a file with the lock that bbolt will take again. A file that was set aside in the meantime is not the
// one that has the name.
func openLocked(name string, flags int, mode fs.FileMode, deadline time.Time) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, flags, mode)
		if err != nil {
			return nil, err
		}
		locked, err := durable.TryLock(f, flags&os.O_RDWR != 0)
		if err == nil && locked {
			if named, err := isNamed(f, name); err == nil && named {
				return f, nil
			}
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if !time.Now().Before(deadline) {
			return nil, ErrInUse
		}
		if !locked {
			time.Sleep(lockPoll)
		}
	}
}

func isNamed(f *os.File, name string) (bool, error) {
	own, err := f.Stat()
	if err != nil {
		return false, err
	}
	st, err := os.Stat(name)
	return err == nil && os.SameFile(own, st), err
}

func setAside(name string) (aside string, err error) {
	aside = name + durable.AsideSuffix
	if err := os.Rename(name, aside); err != nil {
		return "", fmt.Errorf("set a damaged database aside: %w", err)
	}
	return aside, nil
}

// guard runs do, which calls bbolt.
func (d *DB) guard(do func() error) (err error) {
	if d.broken.Load() {
		return ErrDamaged
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			d.broken.Store(true)
			err = fmt.Errorf("%w: %v", ErrDamaged, r)
		}
	}()
	return do()
}

// View is a transaction that reads.
func (d *DB) View(do func(tx *bbolt.Tx) error) error {
	return d.guard(func() error { return d.db.View(do) })
}

// Update is a transaction that writes; when it returns, it is on disk.
func (d *DB) Update(do func(tx *bbolt.Tx) error) error {
	return d.guard(func() error { return d.db.Update(do) })
}

// Close closes at least the file, and with it the lock that others wait for.
func (d *DB) Close() error {
	if d.broken.Load() {
		return errors.Join(durable.Unlock(d.file), d.file.Close()) // bbolt's mapping stays, and would keep the lock
	}
	return d.guard(d.db.Close)
}

// Path is the name of the file.
func (d *DB) Path() string { return d.file.Name() }
