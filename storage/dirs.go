package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"braid/storage/durable"
)

// Directories that files come into and leave. Paths have slashes.

// openDir opens a directory; nil: it does not exist.
func openDir(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return root, err
}

// parents are the directories above a path, the nearest first, without the root itself.
func parents(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for dir := path.Dir(name); dir != "." && yield(dir); dir = path.Dir(dir) {
		}
	}
}

// removeEmpty removes those of the directories that are empty.
func removeEmpty(root *os.Root, dirs map[string]bool) {
	below := slices.SortedFunc(maps.Keys(dirs), func(a, b string) int { return len(b) - len(a) })
	for _, dir := range below {
		_ = root.Remove(filepath.FromSlash(dir)) // fails if files are left in it
	}
}

// syncDirs brings the names in directories to disk. Some may have been removed meanwhile.
func syncDirs(sys durable.System, root *os.Root, dirs map[string]bool) error {
	for dir := range dirs {
		err := durable.SyncDir(sys, root, filepath.FromSlash(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sync directory %s: %w", dir, err)
		}
	}
	return nil
}

// annotate puts what was done in front of an error, if there is one.
func annotate(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}
