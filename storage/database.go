package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// database is a bbolt database that may be damaged, when it is opened or later under our hands. bbolt then panics, or reads
// where nothing is; both become errors here.
type database struct {
	*bbolt.DB
	file   *os.File
	broken atomic.Bool // bbolt has panicked, maybe with its locks held: it must not be called again
}

// openBolt opens a database that may be damaged in any way. A damaged one is set aside, which the caller is told, and a
// new one made. Nobody else may have it open.
func openBolt(name string, opts *bbolt.Options, damaged func(aside string, err error)) (*database, error) {
	err := checkBolt(name)
	db := &database{}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = db.open(name, opts)
	}
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%s: %w; wait for it, or choose another directory", filepath.Dir(filepath.Dir(name)), errLocked)
	case opts.ReadOnly || !errors.Is(err, errDamaged):
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	aside := fmt.Sprintf("%s.damaged-%d", name, time.Now().UnixNano())
	if err := os.Rename(name, aside); err != nil {
		return nil, fmt.Errorf("set a damaged database aside: %w", err)
	}
	damaged(aside, err)
	db = &database{}
	if err := db.open(name, opts); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return db, nil
}

func (d *database) open(name string, opts *bbolt.Options) error {
	o := *opts
	o.OpenFile = func(name string, flags int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flags, mode)
		d.file = f
		return f, err
	}
	return d.guard(func() (err error) {
		d.DB, err = bbolt.Open(name, 0o644, &o)
		return err
	})
}

func (d *database) guard(do func() error) (err error) {
	if d.broken.Load() {
		return errDamaged
	}
	defer func() {
		if r := recover(); r != nil {
			d.broken.Store(true)
			err = fmt.Errorf("%w: %v", errDamaged, r)
		}
	}()
	if fault := guarded(func() { err = do() }); fault != nil {
		d.broken.Store(true)
		return fmt.Errorf("%w: %w", errDamaged, fault)
	}
	return err
}

func (d *database) view(do func(tx *bbolt.Tx) error) error {
	return d.guard(func() error { return d.View(do) })
}

func (d *database) update(sys system, do func(tx *bbolt.Tx) error) error {
	return d.guard(func() error { return sys.update(d.DB, do) })
}

// close closes at least the file, and with it the lock that others wait for.
func (d *database) close() error {
	if d.broken.Load() {
		return errors.Join(unlock(d.file), d.file.Close()) // bbolt's mapping stays, and would keep the lock
	}
	return d.guard(d.Close)
}
