package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Data goes to another directory of the same file system and of another one, from an interrupted copy, too. What belongs to
// others stays in both places.
func TestCopyTo(t *testing.T) {
	places := map[string]string{"the same file system": t.TempDir()}
	if dir, err := os.MkdirTemp("/dev/shm", "braid"); err == nil {
		places["another file system"] = dir
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	l := Layout{Name: "set", PieceLength: 4, Length: 12, Files: []File{
		{Path: "set/a", Length: 4}, {Path: "set/deep/b", Length: 4, Offset: 4}, {Path: "set/c", Length: 4, Offset: 8},
	}}
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
			if names, err := moved.Belongs(false); err != nil || len(names) == 0 || names[0] != "set/a" {
				t.Errorf("the record in the new place knows %v, %v", names, err)
			}
			if err := s.Delete(false); err != nil || list(from) != "set/c" {
				t.Errorf("left: %s, %v", list(from), err)
			}
		})
	}
}

// Without a record only complete data belongs to the torrent, and only by its lengths.
func TestBelongsWithoutRecord(t *testing.T) {
	dir := t.TempDir()
	s := Stored{Kind: KindFile, Dir: dir, Layout: Layout{Name: "f", PieceLength: 4, Length: 4, Files: []File{{Path: "f", Length: 4}}}}
	for content, want := range map[string]int{"data": 1, "longer": 0} {
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		none, err1 := s.Belongs(false)
		all, err2 := s.Belongs(true)
		if err1 != nil || err2 != nil || len(none) != 0 || len(all) != want {
			t.Errorf("%s: %v %v, %v %v", content, none, err1, all, err2)
		}
	}
}
