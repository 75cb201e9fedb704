package storage

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/anacrolix/torrent/metainfo"
)

// The user may rename the files of a torrent. The names on disk change one after the other, so a
// killed process can leave some files with old names and some with new ones. Therefore the caller
// durably records the new names before it renames anything, and a later process renames the rest
// with Stored.Rename.

// Names are the paths of files that the user has renamed, by their index in Layout.Files.
type Names map[int]string

// notText begins the JSON of a path that is not valid UTF-8, which JSON cannot have. Base64
// follows. No path contains a NUL.
const notText = "\x00"

// MarshalJSON writes what UnmarshalJSON reads.
func (n Names) MarshalJSON() ([]byte, error) {
	out := make(map[int]string, len(n))
	for i, p := range n {
		if !utf8.ValidString(p) {
			p = notText + base64.StdEncoding.EncodeToString([]byte(p))
		}
		out[i] = p
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads an object of numbers and paths.
func (n *Names) UnmarshalJSON(b []byte) error {
	var in map[int]string
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	for i, p := range in {
		if code, ok := strings.CutPrefix(p, notText); ok {
			raw, err := base64.StdEncoding.DecodeString(code)
			if err != nil {
				return err
			}
			in[i] = string(raw)
		}
	}
	*n = in
	return nil
}

// Renamed returns the layout in which files have other paths. The paths are checked as those of a
// torrent are.
func (l Layout) Renamed(names Names) (Layout, error) {
	if len(names) == 0 {
		return l, nil
	}
	files := slices.Clone(l.Files)
	for i, p := range names {
		if i < 0 || i >= len(files) {
			return l, fmt.Errorf("file %d has a new name: the torrent has %d files", i, len(files))
		}
		files[i].Path = p
	}
	top, _, _ := strings.Cut(files[0].Path, "/")
	for _, f := range files {
		parts := strings.Split(f.Path, "/")
		if err := checkComponent(parts[0]); err != nil {
			return l, err
		}
		if _, err := joinPath(parts[0], parts[1:]); err != nil {
			return l, err
		}
		if parts[0] != top || strings.EqualFold(top, recordDir) {
			return l, fmt.Errorf("path %q: all files of a torrent are below one directory, which is not %s",
				f.Path, recordDir)
		}
	}
	if err := refuseConflicts(files); err != nil {
		return l, err
	}
	l.Name, l.Files = top, files
	return l, nil
}

// Rename gives a file, or a directory with all its files, another path below the directory of the
// torrent's data. The torrent's own name, which is the first part of all paths, can be replaced by
// another name only. It returns the changed paths.
//
// The error is fs.ErrNotExist if the torrent has no such file or directory, and fs.ErrExist if it
// has one of the new path.
func (l Layout) Rename(from, to string) (Layout, Names, error) {
	top, _, deep := strings.Cut(to, "/")
	switch {
	case from == l.Name && deep:
		return l, nil, fmt.Errorf("rename %q to %q: want a name without a slash", from, to)
	case from != l.Name && (top != l.Name || !deep):
		return l, nil, fmt.Errorf("rename %q to %q: want a path below %q", from, to, l.Name)
	case strings.HasPrefix(to, from+"/"):
		return l, nil, fmt.Errorf("rename %q to %q: the new path is below the old one", from, to)
	case from == to:
		return l, nil, nil
	}
	changed := Names{}
	for i, f := range l.Files {
		switch rest, below := strings.CutPrefix(f.Path, from+"/"); {
		case f.Path == from:
			changed[i] = to
		case below:
			changed[i] = to + "/" + rest
		case f.Path == to, strings.HasPrefix(f.Path, to+"/"):
			return l, nil, fmt.Errorf("rename %q to %q: %w in the torrent", from, to, fs.ErrExist)
		}
	}
	if len(changed) == 0 {
		return l, nil, fmt.Errorf("rename %q: %w in the torrent", from, fs.ErrNotExist)
	}
	out, err := l.Renamed(changed)
	if err != nil {
		return l, nil, fmt.Errorf("rename %q to %q: %w", from, to, err)
	}
	return out, changed, nil
}

// layout is that of a torrent with the names of the user.
func (o Options) layout(info *metainfo.Info, hash metainfo.Hash) (Layout, error) {
	l, err := NewLayout(info)
	if err != nil || o.Names == nil {
		return l, err
	}
	return l.Renamed(o.Names(hash))
}

// CheckRename makes sure that nobody's file has one of the new names. The error is fs.ErrExist
// then.
func (s Stored) CheckRename(changed Names) (err error) {
	defer annotate(&err, "rename files of %s", s.Layout.Name)
	root, err := s.openToRename()
	if err != nil || root == nil {
		return err
	}
	defer root.Close()
	for i, p := range changed {
		from := bothNames(s.Layout.Files[i].Path)
		for k, to := range bothNames(p) {
			if err := refuseTaken(root, from[k], to); err != nil {
				return err
			}
		}
	}
	return nil
}

// Rename gives the files that belong to the torrent (see Belongs) their new names. It can be called
// again if some have them already. After an error all files have their old names. In a database
// there is nothing to rename.
//
// No store may have the torrent open: for an open one there is RenameOpen.
func (s Stored) Rename(ctx context.Context, changed Names) (err error) {
	defer annotate(&err, "rename files of %s", s.Layout.Name)
	root, err := s.openToRename()
	if err != nil || root == nil {
		return err
	}
	defer root.Close()
	belongs, err := s.Belongs(ctx, true)
	if err != nil {
		return err
	}
	r := renames{system: realSystem{}, root: root}
	to := map[string]string{} // from old to new names
	for i, p := range changed {
		old := s.Layout.Files[i].Path
		to[old], to[partName(old)] = p, partName(p)
		r.oldNames = append(r.oldNames, old) // maybe a killed process has renamed it
	}
	for _, name := range belongs {
		if p, ok := to[name]; ok {
			r.pairs = append(r.pairs, [2]string{name, p})
		}
	}
	return r.do()
}

// openToRename opens the directory; nil: there is nothing to rename.
func (s Stored) openToRename() (*os.Root, error) {
	if s.Kind == KindBolt {
		return nil, nil
	}
	return openDir(s.Dir)
}

// RenameOpen is Stored.Rename for a torrent that a store has open. Reads and writes go on. It
// returns false if the store does not have it open.
func RenameOpen(st Store, hash metainfo.Hash, changed Names) (bool, error) {
	s, ok := st.(*store)
	if !ok {
		return false, nil
	}
	t := s.find(hash)
	if t == nil {
		return false, nil
	}
	f, ok := t.place.(*files)
	if !ok {
		return true, nil
	}
	if err := f.renameTo(changed); err != nil {
		return true, fmt.Errorf("rename files of %s: %w", t.layout.Name, err)
	}
	return true, nil
}

// renameTo gives files other names while they are read and written.
func (f *files) renameTo(changed Names) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := renames{system: f.system, root: f.root}
	if r.system == nil {
		r.system = realSystem{}
	}
	for i, p := range changed {
		from, to := filepath.ToSlash(f.name(i)), p
		if !f.final[i] {
			to = partName(to)
		}
		if f.stamps[i] != noFile && isRegular(f.root, from) {
			r.pairs, r.oldNames = append(r.pairs, [2]string{from, to}), append(r.oldNames, from)
		}
	}
	if err := r.do(); err != nil {
		return err
	}
	maps.Copy(f.names, changed)
	return nil
}

// renames are files that get other names below a directory, all or none.
type renames struct {
	system   system
	root     *os.Root
	pairs    [][2]string // old and new names, with slashes
	oldNames []string    // old names, whose directories may be empty now
}

func (r renames) do() error {
	for _, p := range r.pairs {
		if err := refuseTaken(r.root, p[0], p[1]); err != nil {
			return err
		}
	}
	for i, p := range r.pairs {
		if err := r.rename(p[0], p[1]); err != nil {
			return errors.Join(err, r.undo(i))
		}
	}
	if err := r.sync(); err != nil {
		return errors.Join(err, r.undo(len(r.pairs)))
	}
	return nil
}

// undo gives the first n files their old names again.
func (r renames) undo(n int) (err error) {
	for _, p := range slices.Backward(r.pairs[:n]) {
		err = errors.Join(err, r.rename(p[1], p[0]))
	}
	return err
}

func (r renames) rename(from, to string) error {
	if err := r.root.MkdirAll(filepath.FromSlash(path.Dir(to)), 0o755); err != nil {
		return err
	}
	return r.system.Rename(r.root, filepath.FromSlash(from), filepath.FromSlash(to))
}

// sync removes the directories that are empty now, and brings the names to disk.
func (r renames) sync() error {
	left, dirs := map[string]bool{}, map[string]bool{}
	for _, name := range r.oldNames {
		for dir := range parents(name) {
			left[dir], dirs[dir] = true, true
		}
	}
	for _, p := range r.pairs {
		for dir := range parents(p[1]) {
			dirs[dir] = true
		}
		dirs["."] = true
	}
	removeEmpty(r.root, left)
	return syncDirs(r.system, r.root, dirs)
}

// refuseTaken returns an error if somebody has the new name. It may be the file itself, where the
// file system takes both names for one.
func refuseTaken(root *os.Root, from, to string) error {
	there, err := root.Lstat(filepath.FromSlash(to))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	own, err := root.Lstat(filepath.FromSlash(from))
	if err == nil && strings.EqualFold(from, to) && os.SameFile(own, there) {
		return nil
	}
	return fmt.Errorf("%s: %w", filepath.Join(root.Name(), filepath.FromSlash(to)), fs.ErrExist)
}
