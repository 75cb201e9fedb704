package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
)

func (f *files) sync() ([]int, error) {
	f.mu.Lock()
	dirty, dirtyDirs := f.dirty, f.dirtyDirs
	f.dirty, f.dirtyDirs = map[int]bool{}, map[string]bool{}
	f.mu.Unlock()
	if len(dirty)+len(dirtyDirs) == 0 {
		return nil, nil
	}
	if err := f.syncFiles(dirty, dirtyDirs); err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		maps.Copy(f.dirty, dirty)
		maps.Copy(f.dirtyDirs, dirtyDirs)
		if IsFull(err) {
			maps.Copy(f.altered, dirty) // lostPieces has them hashed again, once there is room
		}
		for i := range dirty {
			f.uncache(i)
		}
		return nil, err
	}
	return slices.Collect(maps.Keys(dirty)), nil
}

// uncache has a file read from the disk. After a failed sync, the system may still have data that
// the disk lacks, and a hash of it would be right. The caller holds f.mu.
func (f *files) uncache(i int) {
	if h := f.open[i]; h != nil {
		f.forget(h) // mapped pages would stay
	}
	if file, err := f.openOld(f.name(i)); err == nil {
		f.system.uncache(file)
		file.Close()
	}
}

// syncFiles syncs each file and directory if they are few. If they are many, it syncs the whole file
// systems that hold them, and then asks for each file whether that has failed: only one caller is
// told of an error of a file system, and before Linux 5.8 none is.
func (f *files) syncFiles(dirty map[int]bool, dirtyDirs map[string]bool) error {
	sync := f.system.Sync
	if len(dirty)+len(dirtyDirs) > fewFiles {
		err := f.syncSystems(dirty, dirtyDirs)
		if err == nil {
			sync, dirtyDirs = f.system.isSynced, nil
		} else if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	for i := range dirty {
		h, err := f.take(i, false)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was deleted; lostPieces will find that
		}
		if err != nil {
			return err
		}
		err = sync(h.File)
		f.give(h)
		if err != nil {
			return f.drop(fmt.Errorf("sync %s: %w", f.layout.Files[i].Path, err))
		}
	}
	return syncDirs(f.system, f.root, dirtyDirs)
}

// syncSystems syncs each file system that holds one of the files or directories, once. Another file
// system may be mounted below the root.
func (f *files) syncSystems(dirty map[int]bool, dirtyDirs map[string]bool) error {
	synced := map[uint64]bool{}
	for dir := range dirtyDirs {
		if err := f.syncSystemOf(func() string { return dir }, synced); err != nil {
			return err
		}
	}
	for i := range dirty {
		if err := f.syncSystemOf(func() string { return f.name(i) }, synced); err != nil {
			return err
		}
	}
	return nil
}

// syncSystemOf syncs the file system of a file or directory, unless it is in synced.
func (f *files) syncSystemOf(name func() string, synced map[uint64]bool) error {
	file, err := f.openOther(name, synced)
	if err != nil || file == nil {
		return err
	}
	defer file.Close()
	if err := f.system.syncAll(file); err != nil {
		return f.drop(fmt.Errorf("sync the file system of %s: %w", file.Name(), err))
	}
	return nil
}

// drop notes why a sync has failed, and returns it. After such an error the system takes the data
// for written, and the next sync succeeds without it. So does NFS if the server's disk is full, but
// that is no reason to end the download.
func (f *files) drop(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !IsFull(err) && !errors.Is(err, errors.ErrUnsupported) {
		f.dropped = err
	}
	return err
}

// openOther opens a file or directory if its file system is not in synced, and puts it there;
// otherwise it returns nil. The name does not change meanwhile: a file that just got another one
// would look like a deleted one.
func (f *files) openOther(name func() string, synced map[uint64]bool) (*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st, err := f.root.Stat(name())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it was deleted; lostPieces will find that
	}
	if err != nil || synced[deviceOf(st)] {
		return nil, err
	}
	synced[deviceOf(st)] = true
	return f.root.Open(name())
}
