package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"braid/storage/durable"
)

// Belongs returns the names below Dir, with slashes, of the files that hold data of the torrent:
// its database, or its files. A file is the torrent's by the same rules as for a download (see
// claim.go): it is as in the record, a download owned it, or one of its pieces is right. all is for
// data that was found complete: then no file is hashed that has the length of the torrent's.
//
// No store may have the torrent open.
func (s Stored) Belongs(ctx context.Context, all bool) (names []string, err error) {
	return s.belongs(ctx, all, true)
}

// Holds is Belongs without hashing, also for a torrent that a store has open: it leaves out files
// that only their content would show to be the torrent's.
func (s Stored) Holds(all bool) (names []string, err error) {
	return s.belongs(context.Background(), all, false)
}

func (s Stored) belongs(ctx context.Context, all, hash bool) (names []string, err error) {
	root, err := openDir(s.Dir)
	if err != nil || root == nil {
		return nil, err
	}
	defer root.Close()
	if s.Kind == KindBolt {
		if isRegular(root, boltPath(s.Hash)) {
			names = append(names, boltPath(s.Hash))
		}
		return names, nil
	}
	saved, ok := s.readRecord()
	if !ok {
		saved = newState(s.Layout)
	}
	n := len(s.Layout.Files)
	c := &claimer{
		root: root, layout: s.Layout, names: make([]string, n), before: make([]fs.FileInfo, n),
	}
	var suspects []int
	for i, f := range s.Layout.Files {
		unfinished := isRegular(root, partName(f.Path))
		for _, name := range bothNames(f.Path) {
			st, err := root.Lstat(filepath.FromSlash(name))
			if tooManyOpen(err) {
				return nil, err
			}
			if err != nil || !st.Mode().IsRegular() {
				continue
			}
			owned := saved.Owned.has(i) && (name != f.Path || !unfinished)
			known := owned || saved.stamp(i) == stampFrom(st)
			whole := name == f.Path && st.Size() == f.Length
			switch {
			case known, whole && (all || f.Length == 0):
				names = append(names, name)
			case c.before[i] == nil:
				suspects = append(suspects, i)
			}
			if c.before[i] == nil {
				c.names[i], c.before[i] = filepath.FromSlash(name), st
			}
		}
	}
	if !hash {
		return names, nil
	}
	foreign, err := c.foreign(ctx, suspects, nil)
	if err != nil {
		return nil, err
	}
	for _, i := range suspects {
		if _, ok := foreign[i]; !ok {
			names = append(names, filepath.ToSlash(c.names[i]))
		}
	}
	return names, nil
}

func isRegular(root *os.Root, name string) bool {
	st, err := root.Lstat(filepath.FromSlash(name))
	return err == nil && st.Mode().IsRegular()
}

// setAside are the names of braid's damaged files about the torrent, whether they exist or not.
func (s Stored) setAside() []string {
	names := []string{filepath.ToSlash(recordName(s.Hash, s.Kind)) + durable.AsideSuffix}
	if s.Kind == KindBolt {
		names = append(names, boltPath(s.Hash)+durable.AsideSuffix)
	}
	return names
}

// kept are the names of braid's own files about the torrent, whether they exist or not.
func (s Stored) kept() []string {
	return []string{
		filepath.ToSlash(recordName(s.Hash, s.Kind)),
		filepath.ToSlash(KeptTorrent("", s.Hash)),
	}
}

// Delete deletes the files that belong to the torrent (see Belongs), braid's own files about it,
// and the directories that are empty then. Dir itself stays, and so do the shared files, which
// another torrent holds, too.
func (s Stored) Delete(ctx context.Context, all bool, shared ...string) (err error) {
	defer annotate(&err, "delete %s", s.Layout.Name)
	names, err := s.Belongs(ctx, all)
	if err != nil {
		return err
	}
	root, err := openDir(s.Dir)
	if err != nil || root == nil {
		return err
	}
	defer root.Close()
	slices.Sort(shared)
	names = slices.DeleteFunc(names, func(name string) bool {
		_, found := slices.BinarySearch(shared, name)
		return found
	})
	if err := removeAll(root, names); err != nil {
		return err
	}
	// The record goes last. Without it, nobody would know after a crash or an error whose the other
	// files are.
	return removeAll(root, append(s.setAside(), s.kept()...))
}

// removeAll removes files, and the directories above them that are empty then.
func removeAll(root *os.Root, names []string) error {
	var errs []error
	dirs := map[string]bool{}
	for _, name := range names {
		err := root.Remove(filepath.FromSlash(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for dir := range parents(name) {
			dirs[dir] = true
		}
	}
	delete(dirs, recordDir) // the lock is there, and records of other torrents
	removeEmpty(root, dirs)
	return errors.Join(append(errs, durable.SyncDir(durable.OS{}, root, "."))...)
}
