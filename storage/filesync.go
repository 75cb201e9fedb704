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

// syncSystems syncs each file system that holds one of the files or directories, once.
func (f *files) syncSystems(dirty map[int]bool, dirtyDirs map[string]bool) error {
	systems, err := f.systemsOf(dirty, dirtyDirs)
	for _, file := range systems {
		if err == nil {
			err = f.system.syncAll(file)
			if err != nil {
				err = f.drop(fmt.Errorf("sync the file system of %s: %w", file.Name(), err))
			}
		}
		file.Close()
	}
	return err
}

// systemsOf opens a file or directory of each file system that holds some of these. Another one may
// be mounted below the root. Meanwhile no file is renamed: under its old name it would look
// deleted.
func (f *files) systemsOf(
	dirty map[int]bool, dirtyDirs map[string]bool,
) (map[uint64]*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := slices.Collect(maps.Keys(dirtyDirs))
	for i := range dirty {
		names = append(names, f.name(i))
	}
	out := map[uint64]*os.File{}
	for _, name := range names {
		st, err := f.root.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was deleted; lostPieces will find that
		}
		if err != nil {
			return out, err
		}
		if out[deviceOf(st)] == nil {
			file, err := f.root.Open(name)
			if err != nil {
				return out, err
			}
			out[deviceOf(st)] = file
		}
	}
	return out, nil
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
