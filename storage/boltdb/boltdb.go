// Package boltdb opens bbolt databases whose file may be damaged in any way.
//
// bbolt trusts its file: on a damaged one it panics, in a goroutine of its own too, reads outside
// of its memory, or follows pages in a circle and never ends. Here the file is checked before bbolt
// sees it, and what goes wrong later is an error.
package boltdb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"sync/atomic"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"braid/storage/durable"
)

// ErrDamaged is in errors about a file that bbolt must not be let at, or in which it has failed.
var ErrDamaged = fmt.Errorf("%w: not a sound database", durable.ErrDamaged)

// DB is an open database. Its View and Update return ErrDamaged where bbolt's would panic.
type DB struct {
	db     *bbolt.DB
	file   *os.File
	broken atomic.Bool // bbolt has panicked, maybe with its locks held: it must not be called again
}

// pageSize is that of databases if opts do not say otherwise.
const pageSize = 4096

// Open opens or makes a database without a stored free list, and waits for its lock as long as opts
// say. It checks the file under that lock: while somebody writes, the pages of a good database may
// look wrong. A damaged file is set aside, damaged is told, and a new database is made; if damaged
// is nil, or for reading only, the error is ErrDamaged.
func Open(name string, mode fs.FileMode, opts *bbolt.Options, damaged func(aside string, err error)) (*DB, error) {
	d := &DB{}
	o := *opts
	o.NoFreelistSync = true // small commits; the free pages are found again at the next start, which is quick
	o.FreelistType = bbolt.FreelistMapType
	if o.PageSize == 0 {
		o.PageSize = pageSize
	}
	o.OpenFile = func(name string, flags int, mode fs.FileMode) (*os.File, error) {
		for {
			f, err := durable.OpenLocked(name, flags, mode, o.Timeout)
			if err != nil {
				return nil, err
			}
			if err = check(f, o.PageSize); err == nil {
				d.file = f
				return f, nil
			}
			if !errors.Is(err, ErrDamaged) || damaged == nil || o.ReadOnly {
				return nil, errors.Join(err, f.Close())
			}
			aside := name + durable.AsideSuffix
			if e := errors.Join(os.Rename(name, aside), f.Close()); e != nil {
				return nil, errors.Join(err, fmt.Errorf("set it aside: %w", e))
			}
			damaged(aside, err)
		}
	}
	err := d.guard(func() (err error) {
		d.db, err = bbolt.Open(name, mode, &o)
		return err
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		err = durable.ErrInUse
	}
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", name, err)
	}
	return d, nil
}

// check returns ErrDamaged if bbolt must not be let at the file.
func check(f *os.File, pageSize int) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	c := checker{file: f, size: st.Size(), pageSize: int64(pageSize)}
	if err := c.run(); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
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
