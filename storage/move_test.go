package storage

import (
	"context"
	"crypto/sha1"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/anacrolix/torrent/metainfo"
)

// Data goes to another directory of the same file system and of another one, from an interrupted
// copy, too. What belongs to others stays in both places.
func TestCopyTo(t *testing.T) {
	places := map[string]string{"the same file system": t.TempDir()}
	if dir, err := os.MkdirTemp("/dev/shm", "braid"); err == nil {
		places["another file system"] = dir
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	l := Layout{Name: "set", PieceLength: 4, Length: 12, Files: []File{
		{Path: "set/a", Length: 4}, {Path: "set/deep/b", Length: 4, Offset: 4}, {Path: "set/c", Length: 4, Offset: 8},
	}, hashes: make([]byte, 3*sha1.Size)}
	write := func(dir, name, content string) {
		t.Helper()
		p := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if err == nil {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	list := func(dir string) string {
		var all []string
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				p, err = filepath.Rel(dir, p)
				all = append(all, filepath.ToSlash(p))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(all, " ")
	}
	for name, to := range places {
		t.Run(name, func(t *testing.T) {
			from := t.TempDir()
			s := Stored{Kind: KindFile, Dir: from, Layout: l}
			state := newState(l)
			for i, f := range l.Files {
				write(from, f.Path, "data")
				now, err := stampOf(from, f)
				if err != nil {
					t.Fatal(err)
				}
				if state.setStamp(i, now); i == 2 {
					write(from, f.Path, "foreign")
				}
			}
			b, err := state.encode()
			if err != nil {
				t.Fatal(err)
			}
			write(from, filepath.ToSlash(recordName(s.Hash, s.Kind)), string(b))
			record := filepath.ToSlash(recordName(s.Hash, s.Kind))

			write(to, "set/deep/b", "them")
			if err := s.CopyTo(t.Context(), to, false, nil); !errors.Is(err, fs.ErrExist) || list(to) != "set/deep/b" {
				t.Errorf("somebody else's file: %v, %s", err, list(to))
			}
			write(to, "set/deep/b", "data") // an earlier copy
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := s.CopyTo(ended, to, false, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("ended: %v", err)
			}
			var done int64
			if err := s.CopyTo(t.Context(), to, false, func(n int64) { done = n }); err != nil {
				t.Fatal(err)
			}
			if want := record + " set/a set/deep/b"; list(to) != want || done != 8 {
				t.Errorf("there is %s, want %s; %d bytes", list(to), want, done)
			}
			moved := Stored{Kind: KindFile, Dir: to, Layout: l}
			if names, err := moved.Belongs(t.Context(), false); err != nil || len(names) == 0 || names[0] != "set/a" {
				t.Errorf("the record in the new place knows %v, %v", names, err)
			}
			if err := s.Delete(t.Context(), false); err != nil || list(from) != "set/c" {
				t.Errorf("left: %s, %v", list(from), err)
			}
		})
	}
}

// Without a record, a file belongs to the torrent if one of its pieces is right, or if all data was
// found complete and it is as long.
func TestBelongsWithoutRecord(t *testing.T) {
	dir := t.TempDir()
	right := sha1.Sum([]byte("data"))
	s := Stored{Kind: KindFile, Dir: dir, Layout: Layout{
		Name: "f", PieceLength: 4, Length: 8, Files: []File{{Path: "f", Length: 8}}, hashes: append(right[:], right[:]...),
	}}
	for _, c := range []struct {
		name, content string
		partly, all   int
	}{
		{"f", "datadata", 1, 1}, {"f", "dataxxxx", 1, 1}, {"f", "xxxxdata", 1, 1}, {"f", "xxxxxxxx", 0, 1},
		{"f", "xxxxlonger", 0, 0}, {"f", "dat", 0, 0}, {"f", "", 0, 0}, {"f.part", "data", 1, 1}, {"f.part", "xxxx", 0, 0},
	} {
		path := filepath.Join(dir, c.name)
		if err := os.WriteFile(path, []byte(c.content), 0o644); err != nil {
			t.Fatal(err)
		}
		partly, err1 := s.Belongs(t.Context(), false)
		all, err2 := s.Belongs(t.Context(), true)
		if err1 != nil || err2 != nil || len(partly) != c.partly || len(all) != c.all {
			t.Errorf("%s %q: %v %v, %v %v", c.name, c.content, partly, err1, all, err2)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A process was killed after a copied file had got its name, and before the temporary name was
// removed. The next copy must not write through that name.
func TestCopyToAfterKill(t *testing.T) {
	to, err := os.MkdirTemp("/dev/shm", "braid")
	if err != nil {
		t.Skip("there is no second file system:", err)
	}
	t.Cleanup(func() { os.RemoveAll(to) })
	from := t.TempDir()
	_, l := dataset(t, from, 4, map[string]string{"a": "aaaa", "b": "bbbb"})
	s := Stored{Kind: KindFile, Dir: from, Layout: l}
	a, temporary := filepath.Join(to, "set", "a"), filepath.Join(to, recordDir, s.Hash.HexString()+copySuffix)
	err = errors.Join(os.Mkdir(filepath.Dir(a), 0o755), os.Mkdir(filepath.Dir(temporary), 0o755),
		os.WriteFile(a, []byte("aaaa"), 0o644), os.Link(a, temporary))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CopyTo(t.Context(), to, true, nil); err != nil {
		t.Fatal(err)
	}
	moved := Stored{Kind: KindFile, Dir: to, Layout: l}
	if r, err := moved.Check(t.Context(), nil); err != nil || !r.Complete() {
		t.Errorf("the copy is not whole: %+v, %v", r.Files, err)
	}
	if _, err := os.Lstat(temporary); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary file is left: %v", err)
	}
}

// In the new place, a symbolic link leads back to the files. They must not count as copied, since
// they would be deleted.
func TestCopyToThroughLink(t *testing.T) {
	to := t.TempDir()
	from := filepath.Join(to, "old")
	if err := os.Mkdir(from, 0o755); err != nil {
		t.Fatal(err)
	}
	_, l := dataset(t, from, 4, map[string]string{"a": "aaaa", "deep/b": "bbbb"})
	if err := os.Symlink(filepath.Join("old", "set"), filepath.Join(to, "set")); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	s := Stored{Kind: KindFile, Dir: from, Layout: l}
	if err := s.CopyTo(t.Context(), to, true, nil); err == nil {
		t.Error("files were copied to themselves")
	}
	if r, err := s.Check(t.Context(), nil); err != nil || !r.Complete() {
		t.Errorf("the files are not whole: %+v, %v", r.Files, err)
	}
}

// A file cannot be deleted. The record stays, since the next attempt must know whose the file is.
func TestDeleteFails(t *testing.T) {
	info, l, data := shape(t, 64<<10, 10<<10, 200<<10)
	dir := fastDir(t)
	s, tor := openStore(t, KindFile, dir, info)
	writeBlock(t, tor, info, data, 1, blocksOf(l, 1)[0])
	closeStore(t, s, tor) // f1 exists, and no piece of it is right
	part := filepath.Join(dir, filepath.FromSlash(l.Files[1].Path)+partSuffix)
	if err := exec.CommandContext(t.Context(), "mount", "--bind", part, part).Run(); err != nil {
		t.Skip("a file cannot be kept from being deleted here:", err)
	}
	unmount := sync.OnceFunc(func() {
		if err := exec.Command("umount", part).Run(); err != nil { //nolint:noctx // the test's context may have ended
			t.Error("umount:", err)
		}
	})
	t.Cleanup(unmount)
	stored := Stored{KindFile, dir, metainfo.Hash{9}, l}
	if err := stored.Delete(t.Context(), false); err == nil {
		t.Error("a file that cannot be deleted is no error")
	}
	unmount()
	if err := stored.Delete(t.Context(), false); err != nil {
		t.Error(err)
	}
	if left := below(t, dir); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// With the data of a torrent, files go that were set aside because they were damaged.
func TestDeleteDamaged(t *testing.T) {
	info, l, data := shape(t, 64<<10, 100_000)
	eachKind(t, func(t *testing.T, kind Kind) {
		dir := fastDir(t)
		own := func() []string {
			names, err := filepath.Glob(filepath.Join(dir, recordDir, metainfo.Hash{9}.HexString()+".*"))
			if err != nil {
				t.Fatal(err)
			}
			return names
		}
		for range 2 {
			s, tor := openStore(t, kind, dir, info)
			if err := writePiece(tor, info, data, 0); err != nil {
				t.Fatal(err)
			}
			closeStore(t, s, tor)
			for _, name := range own() {
				if err := os.WriteFile(name, []byte("damaged"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := (Stored{kind, dir, metainfo.Hash{9}, l}).Delete(t.Context(), true); err != nil {
			t.Error(err)
		}
		if left := own(); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
	})
}
