package storage

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/anacrolix/torrent/metainfo"
)

// Pieces of 16 KiB: set/d0/f0 is pieces 0 to 2, set/d1/f1 pieces 2 to 4, set/d2/f2 is empty,
// set/d0/f3 piece 5 alone.
func claimShape(t *testing.T) (*metainfo.Info, Layout, []byte) {
	return shape(t, 16<<10, 40_000, 5*16<<10-40_000, 0, 5000)
}

func put(path string, b []byte, mode fs.FileMode) func(dir string) error {
	return func(dir string) error {
		name := filepath.Join(dir, filepath.FromSlash(path))
		return errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, b, mode), os.Chmod(name, mode))
	}
}

// describe is what is below a directory: names, kinds, modes and contents, without braid's own.
func describe(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == recordDir {
			return fs.SkipDir
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		out.WriteString(rel + " " + st.Mode().String())
		if st.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out.WriteString(" " + string(b))
		}
		out.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// What is there already and holds nothing of the torrent stops the download, and stays as it is; or
// is replaced or set aside, as the user wants. What holds a right piece is used. In the end the
// files are right, and of the right length.
func TestExistingFiles(t *testing.T) {
	info, l, data := claimShape(t)
	first := data[:40_000]
	wrong := bytes.Repeat([]byte("x"), 40_000)
	zeros := make([]byte, 40_000)
	halfRight := append(bytes.Clone(first[:16<<10]), wrong[16<<10:]...)
	link := func(name, to string) func(string) error {
		return func(dir string) error {
			name := filepath.Join(dir, filepath.FromSlash(name))
			return errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(to, name))
		}
	}
	pipe := func(dir string) error {
		return errors.Join(os.MkdirAll(filepath.Join(dir, "set/d0"), 0o755), exec.Command("mkfifo", filepath.Join(dir, "set/d0/f0")).Run())
	}
	mkdir := func(dir string) error { return os.MkdirAll(filepath.Join(dir, "set/d0/f0/x"), 0o755) }
	only := func(path string) func(metainfo.Hash, Layout) []bool {
		return func(_ metainfo.Hash, l Layout) (wanted []bool) {
			for _, f := range l.Files {
				wanted = append(wanted, f.Path == path)
			}
			return wanted
		}
	}
	const keep, replace, rename = KeepExisting, ReplaceExisting, RenameExisting
	for _, c := range []struct {
		name   string
		before func(dir string) error
		how    Existing
		wanted func(metainfo.Hash, Layout) []bool
		want   string // in the error; "" is none
		aside  string // what was set aside, or "-" for a file that was deleted
	}{
		{"nothing", func(string) error { return nil }, keep, nil, "", ""},
		{"foreign", put("set/d0/f0", wrong, 0o644), keep, nil, "set/d0/f0 is a file that is not of this torrent", ""},
		{"foreign, short", put("set/d0/f0", []byte("#!/bin/sh"), 0o644), keep, nil, "set/d0/f0 is a file that is not of this torrent", ""},
		{"foreign, zeros", put("set/d0/f0", zeros, 0o644), keep, nil, "set/d0/f0 is a file", ""},
		{"foreign, empty", put("set/d0/f0", nil, 0o644), keep, nil, "set/d0/f0 is a file", ""},
		{"foreign, replaced", put("set/d0/f0", wrong, 0o644), replace, nil, "", "-"},
		{"foreign, set aside", put("set/d0/f0", wrong, 0o644), rename, nil, "", "set/d0/f0.before-download"},
		{"foreign .part", put("set/d0/f0.part", wrong, 0o644), keep, nil, "f0.part is a file that is not", ""},
		{"foreign .part, replaced", put("set/d0/f0.part", wrong, 0o644), replace, nil, "", "-"},
		{"protected", put("set/d0/f0", wrong, 0o444), keep, nil, "a write-protected file", ""},
		{"protected, not replaced", put("set/d0/f0", wrong, 0o444), replace, nil, "a write-protected file", ""},
		{"protected, set aside", put("set/d0/f0", wrong, 0o444), rename, nil, "", "set/d0/f0.before-download"},
		{"right", put("set/d0/f0", first, 0o644), keep, nil, "", ""},
		{"right, .part", put("set/d0/f0.part", first, 0o644), keep, nil, "", ""},
		{"a piece of it is right", put("set/d0/f0", halfRight, 0o644), keep, nil, "", ""},
		{"right and longer", put("set/d0/f0", append(bytes.Clone(first), wrong...), 0o644), keep, nil, "", ""},
		{"right, and a foreign .part", func(dir string) error {
			return errors.Join(put("set/d0/f0", first, 0o644)(dir), put("set/d0/f0.part", wrong, 0o644)(dir))
		}, keep, nil, "f0.part is a file that is not", ""},
		{"a neighbour is right", put("set/d1/f1", data[40_000:5*16<<10], 0o644), keep, nil, "", ""},
		{"empty", put("set/d2/f2", nil, 0o644), keep, nil, "", ""},
		{"empty, protected", put("set/d2/f2", nil, 0o444), keep, nil, "", ""},
		{"not empty", put("set/d2/f2", []byte("x"), 0o644), keep, nil, "f2 is a file that is not", ""},
		{"not empty, replaced", put("set/d2/f2", []byte("x"), 0o644), replace, nil, "", "-"},
		{"link", link("set/d0/f0", "/etc/passwd"), keep, nil, "symbolic link", ""},
		{"link, not replaced", link("set/d0/f0", "/etc/passwd"), replace, nil, "symbolic link", ""},
		{"link, set aside", link("set/d0/f0", "/etc/passwd"), rename, nil, "", "set/d0/f0.before-download"},
		{"link for a directory", link("set", "/tmp"), keep, nil, "symbolic link", ""},
		{"link for a directory, set aside", link("set", "/tmp"), rename, nil, "", "set.before-download"},
		{"pipe", pipe, keep, nil, "not a regular file", ""},
		{"directory", mkdir, keep, nil, "is a directory", ""},
		{"directory, not replaced", mkdir, replace, nil, "is a directory", ""},
		{"directory, set aside", mkdir, rename, nil, "", "set/d0/f0.before-download"},
		{"file for a directory", put("set/d0", wrong, 0o644), keep, nil, "set/d0 is a file", ""},
		{"file for a directory, replaced", put("set/d0", wrong, 0o644), replace, nil, "", "-"},
		{"not selected", put("set/d0/f0", wrong, 0o644), keep, only("set/d0/f3"), "", ""},
		{"shares a piece with a selected one", put("set/d0/f0", wrong, 0o644), keep, only("set/d1/f1"), "f0 is a file that is not", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, kind := range []Kind{KindFile, KindMmap} {
				dir := fastDir(t)
				if err := c.before(dir); err != nil {
					t.Fatal(err)
				}
				before := describe(t, dir)
				var moved []string
				opts := Options{Existing: c.how, Wanted: c.wanted, Moved: func(path, aside string) {
					rel, _ := filepath.Rel(dir, aside)
					if aside == "" {
						rel = "-"
					}
					moved = append(moved, rel)
				}}
				s, err := Open(kind, dir, slog.New(slog.DiscardHandler), opts)
				if err != nil {
					t.Fatal(err)
				}
				tor, err := s.OpenTorrent(t.Context(), info, metainfo.Hash{9})
				if c.want != "" {
					if err == nil || !errors.Is(err, ErrInTheWay) || !strings.Contains(err.Error(), c.want) {
						t.Errorf("error %v, want %q", err, c.want)
					}
					if after := describe(t, dir); after != before {
						t.Errorf("something has changed: %.500s, before %.500s", after, before)
					}
					if err := s.Close(); err != nil {
						t.Error(err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(moved, " "); got != c.aside {
					t.Errorf("moved %q, want %q", got, c.aside)
				}
				if c.wanted != nil {
					if err := writePiece(tor, info, data, 5); err != nil {
						t.Error(err)
					}
					closeStore(t, s, tor)
					if after, err := os.ReadFile(filepath.Join(dir, "set/d0/f0")); err != nil || !bytes.Equal(after, wrong) {
						t.Errorf("a file that is not selected has changed: %v", err)
					}
					continue
				}
				for p := range l.Pieces() {
					impl := tor.Piece(info.Piece(p))
					if c := impl.Completion(); !c.Ok && hashAndMark(t, impl, info, p) || c.Complete {
						continue
					}
					if err := writePiece(tor, info, data, p); err != nil {
						t.Fatal(err)
					}
				}
				if gone, err := SyncAndCheck(s, metainfo.Hash{9}); err != nil || len(gone) > 0 {
					t.Errorf("gone %v, %v", gone, err)
				}
				closeStore(t, s, tor)
				stored := Stored{kind, dir, metainfo.Hash{9}, l}
				if r, err := stored.Check(t.Context(), nil); err != nil || !r.Complete() || !stored.Trusted() {
					t.Errorf("trusted %v, check %+v, %v", stored.Trusted(), r.Files, err)
				}
			}
		})
	}
}

// With all backends: a file from before that is longer, and was taken for complete.
func TestLongerFile(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		info, l, data := shape(t, 32<<10, 300_000)
		dir, out := fastDir(t), fastDir(t)
		if kind != KindBolt {
			out = dir
		}
		if err := put(l.Files[0].Path, append(bytes.Clone(data), data[:100_000]...), 0o644)(out); err != nil {
			t.Fatal(err)
		}
		s, tor := openStore(t, kind, dir, info)
		for p := range l.Pieces() {
			if !hashAndMark(t, tor.Piece(info.Piece(p)), info, p) {
				if err := writePiece(tor, info, data, p); err != nil {
					t.Fatal(err)
				}
			}
		}
		closeStore(t, s, tor)
		stored := Stored{kind, dir, metainfo.Hash{9}, l}
		if r, err := stored.Check(t.Context(), nil); err != nil || !r.Complete() || !stored.Trusted() {
			t.Errorf("trusted %v, check %+v, %v", stored.Trusted(), r.Files, err)
		}
		if kind == KindBolt {
			if err := stored.Export(t.Context(), out, slog.New(slog.DiscardHandler), nil, Options{}); err != nil {
				t.Fatal(err)
			}
		}
		sameData(t, out, l, data)
	})
}

// A file is a download's own if the record knows it as it is, or if a download was killed that may
// have made it.
func TestOwnFiles(t *testing.T) {
	info, l, data := claimShape(t)
	const own, foreign = true, false
	wrong := bytes.Repeat([]byte("x"), 40_000)
	name := filepath.Join("set", "d0", "f0")
	nothing := func(*torrent) error { return nil }
	repairing := func(tor *torrent) error {
		return errors.Join(tor.sync(), piece{torrent: tor}.MarkNotComplete())
	}
	for _, c := range []struct {
		name   string
		pieces int                  // that were written
		killed func(*torrent) error // what the download did last before it was killed; nil: it was not
		after  func(dir string) error
		want   bool
	}{
		{"as it was", 1, nil, func(string) error { return nil }, own},
		{"changed while it was not complete", 1, nil, put(name+partSuffix, wrong, 0o644), own},
		{"replaced since", 5, nil, put(name, wrong, 0o644), foreign},
		{"appeared since", 0, nil, put(name, wrong, 0o644), foreign},
		{"killed, data lost", 5, nothing, put(name, make([]byte, 40_000), 0o644), own},
		{"killed, .part without a right piece", 0, nothing, put(name+partSuffix, wrong, 0o644), own},
		{"killed, replaced after it was recorded", 5, (*torrent).sync, put(name, wrong, 0o644), foreign},
		{"killed, a piece was wrong again", 5, repairing, put(name+partSuffix, make([]byte, 40_000), 0o644), own},
		{"killed, and then a file appeared", 5, repairing, put(name, wrong, 0o644), foreign},
		{"killed before, and a file appeared", 1, nothing, put(name, wrong, 0o644), foreign},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, image := fastDir(t), fastDir(t)
			s, tor := openStore(t, KindFile, dir, info)
			for p := range c.pieces {
				if err := writePiece(tor, info, data, p); err != nil {
					t.Fatal(err)
				}
			}
			if c.killed == nil {
				closeStore(t, s, tor)
			} else if err := c.killed(tor.Piece(info.Piece(0)).(piece).torrent); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(image, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			for _, f := range l.Files {
				for _, n := range []string{f.Path, f.Path + partSuffix} {
					if st, err := os.Stat(filepath.Join(dir, n)); err == nil {
						if err := os.Chtimes(filepath.Join(image, n), st.ModTime(), st.ModTime()); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if c.killed != nil {
				closeStore(t, s, tor)
			}
			if err := c.after(image); err != nil {
				t.Fatal(err)
			}
			s, err := Open(KindFile, image, slog.New(slog.DiscardHandler), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := Claim(t.Context(), s, l, metainfo.Hash{9}, nil); (err == nil) != c.want || err != nil && !errors.Is(err, ErrInTheWay) {
				t.Errorf("error %v, own %v", err, c.want)
			}
			names, err := Stored{KindFile, image, metainfo.Hash{9}, l}.Belongs(t.Context(), false)
			if err != nil || !c.want && slices.Contains(names, filepath.ToSlash(name)) {
				t.Errorf("with the torrent, %v would be deleted, %v", names, err)
			}
		})
	}
}

// A write-protected file of which a piece is wrong stays as it is, for root too.
func TestProtectedFile(t *testing.T) {
	info, l, data := shape(t, 16<<10, 40_000)
	dir := fastDir(t)
	damaged := bytes.Clone(data)
	damaged[39_000]++
	if err := put(l.Files[0].Path, damaged, 0o444)(dir); err != nil {
		t.Fatal(err)
	}
	before := describe(t, dir)
	s, tor := openStore(t, KindFile, dir, info)
	err := writePiece(tor, info, data, 2)
	if err == nil || !strings.Contains(err.Error(), "write-protected") {
		t.Errorf("error %v", err)
	}
	closeStore(t, s, tor)
	if after := describe(t, dir); after != before {
		t.Error("it has changed")
	}
}

// A file that appears while a download goes on is not written to, nor replaced when the download's
// own gets its final name.
func TestFileAppears(t *testing.T) {
	for _, suffix := range []string{"", partSuffix} {
		info, l, data := shape(t, 16<<10, 40_000)
		dir := fastDir(t)
		s, tor := openStore(t, KindFile, dir, info)
		err := put(l.Files[0].Path+suffix, []byte("mine"), 0o644)(dir)
		for p := 0; err == nil && p < l.Pieces(); p++ {
			err = writePiece(tor, info, data, p)
		}
		if err == nil || !strings.Contains(err.Error(), "has appeared") {
			t.Errorf("%q: error %v", suffix, err)
		}
		_ = errors.Join(tor.Close(), s.Close())
		if b, err := os.ReadFile(filepath.Join(dir, l.Files[0].Path+suffix)); err != nil || string(b) != "mine" {
			t.Errorf("%q holds %.20q, %v", suffix, b, err)
		}
	}
}

func TestDotfiles(t *testing.T) {
	info := metainfo.Info{Name: ".bashrc", PieceLength: 16 << 10, Length: 5, Pieces: make([]byte, 20)}
	for _, c := range []struct {
		kind Kind
		dots bool
		want bool
	}{{KindFile, false, false}, {KindMmap, false, false}, {KindFile, true, true}, {KindBolt, false, true}} {
		s, err := Open(c.kind, t.TempDir(), slog.New(slog.DiscardHandler), Options{AllowDotfiles: c.dots})
		if err != nil {
			t.Fatal(err)
		}
		tor, err := s.OpenTorrent(t.Context(), &info, metainfo.Hash{9})
		if (err == nil) != c.want || err != nil && !errors.Is(err, ErrDotName) {
			t.Errorf("%s: %v", c.kind, err)
		}
		if err == nil {
			err = tor.Close()
		} else {
			err = nil
		}
		if err := errors.Join(err, s.Close()); err != nil {
			t.Error(err)
		}
	}
}

// folding is a file system that takes names for one that differ only in case or in Unicode form.
type folding struct{ realSystem }

func (folding) folds(string) (bool, error) { return true, nil }

func TestTwins(t *testing.T) {
	for _, c := range []struct {
		names []string
		twins bool
	}{
		{[]string{"a", "b", "README"}, false},
		{[]string{"README", "readme"}, true},
		{[]string{"docs/a", "Docs/b"}, false}, // one directory for both does no harm
		{[]string{"docs/a", "Docs/A"}, true},
		{[]string{"docs", "Docs/a"}, true},
		{[]string{"caf\u00e9", "cafe\u0301"}, true},
		{[]string{"CAF\u00c9", "cafe\u0301"}, true},
		{[]string{"a", "A.part"}, true}, // while a is not complete
		{[]string{"stra\u00dfe", "STRASSE"}, true},
	} {
		info := metainfo.Info{Name: "set", PieceLength: 16 << 10, Pieces: make([]byte, 20)}
		for _, n := range c.names {
			info.Files = append(info.Files, metainfo.FileInfo{Length: 1, Path: strings.Split(n, "/")})
		}
		for _, sys := range []system{realSystem{}, folding{}} {
			s, err := Open(KindFile, fastDir(t), slog.New(slog.DiscardHandler), Options{system: sys})
			if err != nil {
				t.Fatal(err)
			}
			tor, err := s.OpenTorrent(context.Background(), &info, metainfo.Hash{9})
			_, folds := sys.(folding)
			if refused := err != nil; refused != (folds && c.twins) || refused && !strings.Contains(err.Error(), "one name") {
				t.Errorf("%q, folding %v: %v", c.names, folds, err)
			}
			if err == nil {
				err = tor.Close()
			} else {
				err = nil
			}
			if err := errors.Join(err, s.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// syncs counts the file systems that are synced as a whole.
type syncs struct {
	realSystem
	mu      sync.Mutex
	devices map[uint64]bool
}

func (s *syncs) syncAll(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.devices[deviceOf(st)] = true
	s.mu.Unlock()
	return s.realSystem.syncAll(f)
}

// Another disk may be mounted below the directory: it is synced too.
func TestSyncBelowAnotherMount(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "set", "d1")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=8m", "braid-test", other).Run(); err != nil {
		t.Skip("a small file system cannot be mounted here:", err)
	}
	t.Cleanup(func() {
		if err := exec.Command("umount", other).Run(); err != nil { //nolint:noctx // the test's context has ended
			t.Error("umount:", err)
		}
	})
	info, l, data := shape(t, 64<<10, repeat(700, 150)...)
	sys := &syncs{devices: map[uint64]bool{}}
	s, tor := openStore(t, KindFile, dir, info, Options{system: sys})
	for p := range l.Pieces() {
		if err := writePiece(tor, info, data, p); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s, tor)
	if len(sys.devices) != 2 {
		t.Errorf("%d file systems were synced, want 2", len(sys.devices))
	}
}

// A killed download has left a file with .part. Then the user has copied an incomplete file of the
// same torrent to the final name. The download continues in the copy.
func TestBothNamesAreOurs(t *testing.T) {
	info, l, data := claimShape(t)
	dir := fastDir(t)
	s, tor := openStore(t, KindFile, dir, info)
	if err := writePiece(tor, info, data, 0); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s, tor)
	f := l.Files[0]
	name := filepath.Join(dir, filepath.FromSlash(f.Path))
	if _, err := os.Lstat(name + partSuffix); err != nil {
		t.Fatal(err)
	}
	half := append(bytes.Clone(data[:f.Length/2]), make([]byte, f.Length-f.Length/2)...)
	if err := os.WriteFile(name, half, 0o644); err != nil {
		t.Fatal(err)
	}
	s, tor = openStore(t, KindFile, dir, info)
	for p := range l.Pieces() {
		if !hashAndMark(t, tor.Piece(info.Piece(p)), info, p) {
			if err := writePiece(tor, info, data, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	closeStore(t, s, tor)
	sameData(t, dir, l, data)
}

// Another program makes a file beside our complete file, with the same name and .part. braid finds
// a wrong piece in our file and writes it again. Neither changes the other program's file.
func TestPartAppears(t *testing.T) {
	info, l, data := claimShape(t)
	dir := fastDir(t)
	s, tor := openStore(t, KindFile, dir, info)
	for p := range l.Pieces() {
		if err := writePiece(tor, info, data, p); err != nil {
			t.Fatal(err)
		}
	}
	theirs := filepath.Join(dir, filepath.FromSlash(l.Files[0].Path)+partSuffix)
	if err := os.WriteFile(theirs, []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := tor.Piece(info.Piece(0)).MarkNotComplete(); err == nil {
		t.Error("a name that is taken is no error")
	}
	if err := writePiece(tor, info, data, 0); err == nil || !strings.Contains(err.Error(), "appeared") {
		t.Errorf("a write: %v", err)
	}
	if b, err := os.ReadFile(theirs); err != nil || string(b) != "theirs" {
		t.Errorf("the file of somebody else is %q, %v", b, err)
	}
	_ = tor.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
