package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Two names may differ only in case or in Unicode form. Most file systems of Linux keep two files;
// those of macOS, Windows and USB sticks keep one. There, both files would be written into one, and
// their pieces would never stay right. Such a torrent is refused only where the file system takes
// the names for one, since honest torrents have such names (the sources of Linux do). braid does
// not rename the files: neither other clients nor braid verify would find them.

// twins finds two paths of a torrent that such a file system takes for one; ok is false if there
// are none.
func twins(l Layout) (a, b string, ok bool) {
	fold := cases.Fold()
	key := func(s string) string {
		for i := range len(s) {
			if c := s[i]; c >= 0x80 || 'A' <= c && c <= 'Z' {
				return norm.NFC.String(fold.String(norm.NFC.String(s)))
			}
		}
		return s
	}
	files := make(map[string]string, 2*len(l.Files))
	for _, f := range l.Files {
		for _, name := range bothNames(f.Path) {
			k := key(name)
			if other, taken := files[k]; taken {
				return other, f.Path, true
			}
			files[k] = f.Path
		}
	}
	// Two directories may become one, but a directory and a file may not.
	dirs := map[string]bool{}
	for _, f := range l.Files {
		for d := path.Dir(f.Path); d != "." && !dirs[d]; d = path.Dir(d) {
			dirs[d] = true
			if other, taken := files[key(d)]; taken {
				return other, f.Path, true
			}
		}
	}
	return "", "", false
}

func (s *store) refuseTwins(l Layout) error {
	a, b, ok := twins(l)
	if !ok {
		return nil
	}
	folds, err := s.options.system.folds(filepath.Join(s.dir, recordDir))
	if err != nil {
		return fmt.Errorf("see how the file system takes names: %w", err)
	}
	if folds {
		return fmt.Errorf("%q and %q have one name on the file system of %s: "+
			"download into a directory on another one", a, b, s.dir)
	}
	return nil
}

// foldProbe has a name that changes with case and with its Unicode form.
const foldProbe = "Fold-\u00c9-"

// foldsNames tells whether two names that differ only in case or in Unicode form are one in a
// directory.
func foldsNames(dir string) (bool, error) {
	f, err := os.CreateTemp(dir, foldProbe)
	if err != nil {
		return false, err
	}
	defer os.Remove(f.Name())
	if err := f.Close(); err != nil {
		return false, err
	}
	base := filepath.Base(f.Name())
	for _, other := range []string{cases.Fold().String(base), norm.NFD.String(base)} {
		_, err := os.Lstat(filepath.Join(dir, other))
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}
