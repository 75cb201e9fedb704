package storage

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anacrolix/torrent/metainfo"

	"braid/storage/durable"
)

func TestRenameInLayout(t *testing.T) {
	set := func(paths ...string) Layout {
		l := Layout{Name: "set"}
		for _, p := range paths {
			l.Files = append(l.Files, File{Path: p, Length: 1})
		}
		return l
	}
	many := set("set/a", "set/d/b", "set/d/e/c")
	one := set("set")
	for _, c := range []struct {
		l        Layout
		from, to string
		want     string // paths afterwards; empty: it is refused
	}{
		{many, "set/a", "set/x", "set/x set/d/b set/d/e/c"},
		{many, "set/a", "set/d/a", "set/d/a set/d/b set/d/e/c"},
		{many, "set/d", "set/new", "set/a set/new/b set/new/e/c"},
		{many, "set/d/e", "set/e", "set/a set/d/b set/e/c"},
		{many, "set/d/e/c", "set/d/c", "set/a set/d/b set/d/c"},
		{many, "set", "other", "other/a other/d/b other/d/e/c"},
		{many, "set/a", "set/a", "set/a set/d/b set/d/e/c"},
		{one, "set", "file", "file"},
		{one, "set", "dir/file", ""},
		{many, "set/a", "set/d", ""},
		{many, "set/a", "set/d/b", ""},
		{many, "set/d", "set/a", ""},
		{many, "set/a", "set/d/b/x", ""},
		{many, "set/d", "set/d/x", ""},
		{many, "set/b", "set/x", ""},
		{many, "set/a", "other/a", ""},
		{many, "set/a", "a", ""},
		{many, "set", "set/x", ""},
		{many, "set", "x/y", ""},
		{many, "set", ".braid", ""},
		{many, "set", "..", ""},
		{many, "set", "", ""},
		{many, "set/a", "set/../x", ""},
		{many, "set/a", "set//x", ""},
		{many, "set/a", "set/x/", ""},
		{many, "set/a", `set/x\y`, ""},
		{many, "set/a", "set/x\x00", ""},
		{many, "set/a", "set/" + strings.Repeat("x", 256), ""},
		{many, "set/a", "set/" + strings.Repeat("x/", 100) + "a", ""},
		{many, "set/d/b", "set/a.part", ""},
		{many, "/set/a", "/set/x", ""},
		{many, "", "x", ""},
	} {
		l, changed, err := c.l.Rename(c.from, c.to)
		var got []string
		for i, f := range l.Files {
			if got = append(got, f.Path); f.Path != c.l.Files[i].Path && changed[i] != f.Path {
				t.Errorf("rename %q to %q: %v lacks file %d", c.from, c.to, changed, i)
			}
		}
		if (err == nil) != (c.want != "") || err == nil && strings.Join(got, " ") != c.want {
			t.Errorf("rename %q to %q: %v, %v, want %q", c.from, c.to, got, err, c.want)
		}
	}
	if _, err := many.Renamed(Names{3: "set/x"}); err == nil {
		t.Error("a file that does not exist has another name")
	}
}

// below lists the files in a directory that are not braid's own.
func below(t *testing.T, dir string) (all []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == recordDir {
			return fs.SkipDir
		}
		if err == nil && p != dir {
			p, err = filepath.Rel(dir, p)
			if d.IsDir() {
				p += "/"
			}
			all = append(all, p)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// A download whose files are renamed, while it writes and afterwards, is complete without a look at
// the data. Files of others stay.
func TestRenameFiles(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		info, l, data := shape(t, 16<<10, 40_000, 0, 30_000, 50_000)
		dir, hash := t.TempDir(), metainfo.Hash{9}
		names := Names{}
		s, err := Open(kind, dir, slog.New(slog.DiscardHandler), Options{Names: func(metainfo.Hash) Names { return names }})
		if err != nil {
			t.Fatal(err)
		}
		tor, err := s.OpenTorrent(t.Context(), info, hash)
		if err != nil {
			t.Fatal(err)
		}
		if err := writePiece(tor, info, data, 0); err != nil {
			t.Fatal(err)
		}
		step := func(from, to string) {
			t.Helper()
			now, changed, err := l.Rename(from, to)
			if err == nil {
				err = Stored{kind, dir, hash, l}.CheckRename(changed)
			}
			open := false
			if err == nil {
				if open, err = RenameOpen(s, hash, changed); err == nil && !open {
					err = Stored{kind, dir, hash, l}.Rename(t.Context(), changed)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			l = now
			maps.Copy(names, changed)
		}
		var writing sync.WaitGroup
		writing.Go(func() {
			for p := 1; p < info.NumPieces(); p++ {
				if err := writePiece(tor, info, data, p); err != nil {
					t.Error(err)
				}
			}
		})
		step("set/d0", "set/deep/er")
		step("set", "other")
		step("other/d2/f2", "other/f2")
		writing.Wait()
		closeStore(t, s, tor)
		if err := os.WriteFile(filepath.Join(dir, "foreign"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(kind, dir, slog.New(slog.DiscardHandler), Options{Names: func(metainfo.Hash) Names { return names }}); err != nil {
			t.Fatal(err)
		}
		step("other/deep", "other/flat") // it is not open
		step("other", "third")
		if tor, err = s.OpenTorrent(t.Context(), info, hash); err != nil {
			t.Fatal(err)
		}
		for p := range info.NumPieces() {
			if c := tor.Piece(info.Piece(p)).Completion(); !c.Ok || !c.Complete {
				t.Errorf("piece %d has to be verified again: %+v", p, c)
			}
		}
		closeStore(t, s, tor)
		if !(Stored{kind, dir, hash, l}).Trusted() {
			t.Error("the record does not vouch for the renamed files")
		}
		want := []string{"foreign", "third/", "third/d1/", "third/d1/f1", "third/f2", "third/flat/", "third/flat/er/", "third/flat/er/f0", "third/flat/er/f3"}
		if kind == KindBolt {
			want = []string{"foreign"}
		}
		if got := below(t, dir); !slices.Equal(got, want) {
			t.Errorf("there is %v, want %v", got, want)
		}
		// Complete data that is only served gets other names while it is read, too.
		s, err = OpenVerifiedIn(kind, dir, slog.New(slog.DiscardHandler), func(metainfo.Hash) Names { return names })
		if err != nil {
			t.Fatal(err)
		}
		if tor, err = s.OpenTorrent(t.Context(), info, hash); err != nil {
			t.Fatal(err)
		}
		step("third/flat", "third/again")
		b := make([]byte, 16<<10)
		if _, err := tor.Piece(info.Piece(0)).ReadAt(b, 0); err != nil || string(b) != string(data[:len(b)]) {
			t.Errorf("read after it was renamed: %v", err)
		}
		closeStore(t, s, tor)
	})
}

// failing refuses to rename to one name.
type failing struct {
	realSystem
	name string
}

func (f failing) Rename(root *os.Root, from, to string) error {
	if to == f.name {
		return errors.New("refused")
	}
	return durable.OS{}.Rename(root, from, to)
}

// Nothing is overwritten, a failure changes no name, and what a killed process has begun is ended.
func TestRenameAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	_, l := dataset(t, dir, 8, map[string]string{"a": "aaaa", "d/b": "bbbb", "d/c": "cccc"})
	s := Stored{KindFile, dir, metainfo.Hash{9}, l}
	before := below(t, dir)
	_, changed, err := l.Rename("set", "new")
	if err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "new", "d", "c.part")
	if err := os.MkdirAll(filepath.Dir(foreign), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(foreign, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckRename(changed); !errors.Is(err, fs.ErrExist) {
		t.Errorf("in the way of an incomplete file: %v", err)
	}
	if err := os.Rename(foreign, strings.TrimSuffix(foreign, ".part")); err != nil {
		t.Fatal(err)
	}
	if err := s.Rename(t.Context(), changed); !errors.Is(err, fs.ErrExist) {
		t.Errorf("in the way of a file: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	r := renames{system: failing{name: "new/d/c"}, root: root, pairs: [][2]string{{"set/a", "new/a"}, {"set/d/b", "new/d/b"}, {"set/d/c", "new/d/c"}}}
	if err := r.do(); err == nil {
		t.Error("a refused name is no error")
	}
	if got := below(t, dir); !slices.Equal(slices.DeleteFunc(got, func(p string) bool { return strings.HasPrefix(p, "new") }), before) {
		t.Errorf("after a failure there is %v", got)
	}
	// A process was killed after the first file.
	if err := os.Rename(filepath.Join(dir, "set", "a"), filepath.Join(dir, "new", "a")); err != nil {
		t.Fatal(err)
	}
	if err := s.Rename(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if got, want := below(t, dir), []string{"new/", "new/a", "new/d/", "new/d/b", "new/d/c"}; !slices.Equal(got, want) {
		t.Errorf("there is %v, want %v", got, want)
	}
	if err := s.Rename(t.Context(), changed); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// unsyncable cannot sync a directory while fails is set.
type unsyncable struct {
	realSystem
	fails atomic.Bool
}

func (u *unsyncable) Sync(f *os.File) error {
	if st, err := f.Stat(); err == nil && st.IsDir() && u.fails.Load() {
		return errors.New("refused")
	}
	return u.realSystem.Sync(f)
}

// New names that may not be on disk are taken back, and the download goes on with the old ones.
func TestRenameIsNotSynced(t *testing.T) {
	info, l, data := shape(t, 16<<10, 16<<10, 32<<10)
	dir := fastDir(t)
	sys := &unsyncable{}
	s, tor := openStore(t, KindFile, dir, info, Options{system: sys})
	for p := range 2 {
		if err := writePiece(tor, info, data, p); err != nil {
			t.Fatal(err)
		}
	}
	if lost, err := SyncAndCheck(s, metainfo.Hash{9}); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	before := below(t, dir)
	_, changed, err := l.Rename("set", "new")
	if err != nil {
		t.Fatal(err)
	}
	sys.fails.Store(true)
	if _, err := RenameOpen(s, metainfo.Hash{9}, changed); err == nil {
		t.Error("names that are not synced are no error")
	}
	sys.fails.Store(false)
	isNew := func(name string) bool { return strings.HasPrefix(name, "new/") && strings.HasSuffix(name, "/") }
	if got := slices.DeleteFunc(below(t, dir), isNew); !slices.Equal(got, before) {
		t.Errorf("there is %v, want %v", got, before)
	}
	if lost, err := SyncAndCheck(s, metainfo.Hash{9}); err != nil || len(lost) > 0 {
		t.Errorf("lost are %v, %v", lost, err)
	}
	if err := writePiece(tor, info, data, 2); err != nil {
		t.Error(err)
	}
	closeStore(t, s, tor)
	if r, err := (Stored{KindFile, dir, metainfo.Hash{9}, l}).Check(t.Context(), nil); err != nil || !r.Complete() {
		t.Errorf("%+v, %v", r, err)
	}
}

// counted counts syncs of whole file systems, and syncs nothing.
type counted struct {
	realSystem
	syncs atomic.Int64
}

func (c *counted) Sync(*os.File) error { return nil }

func (c *counted) syncAll(*os.File) error {
	c.syncs.Add(1)
	return nil
}

// Files get other names while many files are synced. The sync covers them, and does not fail.
func TestSyncDuringRename(t *testing.T) {
	info, l, data := shape(t, 16<<10, repeat(16<<10, fewFiles+1)...)
	sys := &counted{}
	s, tor := openStore(t, KindFile, fastDir(t), info, Options{system: sys})
	for p := range l.Pieces() {
		if err := writePiece(tor, info, data, p); err != nil {
			t.Fatal(err)
		}
	}
	f := tor.Piece(info.Piece(0)).(piece).torrent.place.(*files)
	var renaming sync.WaitGroup
	stop := make(chan struct{})
	renaming.Go(func() {
		now := l
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			next, changed, err := now.Rename(now.Name, []string{"other", "set"}[i%2])
			if err == nil {
				_, err = RenameOpen(s, metainfo.Hash{9}, changed)
			}
			if now = next; err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 200 {
		dirty := map[int]bool{}
		for j := range l.Files {
			dirty[j] = true
		}
		before := sys.syncs.Load()
		if err := f.syncFiles(dirty, nil); err != nil || sys.syncs.Load() == before {
			t.Errorf("sync %d: %v; %d file systems", i, err, sys.syncs.Load()-before)
		}
	}
	close(stop)
	renaming.Wait()
	closeStore(t, s, tor)
}

// Names survive JSON, whatever bytes they have.
func TestNamesAsJSON(t *testing.T) {
	for _, names := range []Names{nil, {}, {0: "set/a", 7: "set/\xb5\xda/\u4e00"}, {1: "\ufffd"}} {
		b, err := json.Marshal(names)
		var got Names
		if err = errors.Join(err, json.Unmarshal(b, &got)); err != nil || !maps.Equal(got, names) {
			t.Errorf("%v became %v by way of %s: %v", names, got, b, err)
		}
	}
	var got Names
	if err := json.Unmarshal([]byte(`{"0":"\u0000?"}`), &got); err == nil {
		t.Errorf("wrong base64 became %v", got)
	}
}
