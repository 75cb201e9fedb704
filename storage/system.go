package storage

import (
	"os"

	"go.etcd.io/bbolt"

	"braid/storage/boltdb"
	"braid/storage/durable"
)

// system is what the backends ask of the operating system where it matters for what survives a
// crash or fits on the disk. Tests put one in its place whose disk is full, or forgets what was not
// synced.
type system interface {
	durable.System
	// syncAll syncs the file system that f is on, or says that it cannot (errors.ErrUnsupported).
	syncAll(f *os.File) error
	// folds tells whether names that differ only in case or in Unicode form are one in a directory.
	folds(dir string) (bool, error)
	// update is a transaction; when it returns, it is on disk.
	update(db *boltdb.DB, do func(tx *bbolt.Tx) error) error
}

type realSystem struct{ durable.OS }

func (realSystem) syncAll(f *os.File) error                                { return syncFileSystem(f) }
func (realSystem) folds(dir string) (bool, error)                          { return foldsNames(dir) }
func (realSystem) update(db *boltdb.DB, do func(tx *bbolt.Tx) error) error { return db.Update(do) }
