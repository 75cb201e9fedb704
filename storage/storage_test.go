package storage

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anacrolix/torrent/metainfo"

	"braid/storage/durable"
)

// dataset writes files and returns their torrent.
func dataset(t *testing.T, dir string, pieceLength int64, files map[string]string) (metainfo.Info, Layout) {
	t.Helper()
	info := metainfo.Info{Name: "set", PieceLength: pieceLength}
	var all string
	names := make([]string, 0, len(files))
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		path := filepath.Join(dir, "set", n)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[n]), 0o644); err != nil {
			t.Fatal(err)
		}
		info.Files = append(info.Files, metainfo.FileInfo{Length: int64(len(files[n])), Path: strings.Split(n, "/")})
		all += files[n]
	}
	for ; len(all) > 0; all = all[min(len(all), int(pieceLength)):] {
		sum := sha1.Sum([]byte(all[:min(len(all), int(pieceLength))]))
		info.Pieces = append(info.Pieces, sum[:]...)
	}
	l, err := NewLayout(&info)
	if err != nil {
		t.Fatal(err)
	}
	return info, l
}

func TestHashAgreesWithTheTorrent(t *testing.T) {
	dir := t.TempDir()
	info, l := dataset(t, dir, 8, map[string]string{"a": "0123456789", "b/c": "", "b/d": "x", "e": strings.Repeat("yz", 30)})
	sums, err := Hash(t.Context(), l, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(sums) != string(info.Pieces) {
		t.Error("other hashes than those of the bytes in one string")
	}
}

func anyTorrent(metainfo.Hash) bool { return true }

func TestCheck(t *testing.T) {
	// Pieces of 8 bytes: a has pieces 0 and 1, b pieces 1 and 2, c piece 2 to 4, z none.
	files := map[string]string{"a": "aaaaaaaaaaaa", "b": "bbbbbbbb", "c": strings.Repeat("c", 20), "z": ""}
	write := func(name, content string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "set", name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "set", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*testing.T, string)
		want   [4]FileState
		good   int
	}{
		{"right", func(*testing.T, string) {}, [4]FileState{FileOK, FileOK, FileOK, FileOK}, 5},
		{"damaged alone", write("c", strings.Repeat("c", 19)+"x"), [4]FileState{FileOK, FileOK, FileDamaged, FileOK}, 4},
		{"damaged on an edge", write("a", "aaaaaaaaaaax"), [4]FileState{FileDamaged, FileDamaged, FileOK, FileOK}, 4},
		{"missing", remove("b"), [4]FileState{FileUnknown, FileMissing, FileUnknown, FileOK}, 3},
		{"missing and empty", remove("z"), [4]FileState{FileOK, FileOK, FileOK, FileMissing}, 5},
		{"short", write("c", "cccccccc"), [4]FileState{FileOK, FileOK, FileSize, FileOK}, 3},
		{"long", write("b", "bbbbbbbbb"), [4]FileState{FileOK, FileSize, FileOK, FileOK}, 5},
		{"unfinished", func(t *testing.T, dir string) { // what there is of it is enough for its neighbours
			remove("b")(t, dir)
			write("b"+partSuffix, "bbbbbbbb")(t, dir)
		}, [4]FileState{FileOK, FilePartial, FileOK, FileOK}, 5},
		{"unfinished with a hole", func(t *testing.T, dir string) {
			remove("b")(t, dir)
			write("b"+partSuffix, "bbbb\x00\x00\x00\x00")(t, dir)
		}, [4]FileState{FileOK, FilePartial, FileUnknown, FileOK}, 4},
		{"unfinished and short", func(t *testing.T, dir string) {
			remove("b")(t, dir)
			write("b"+partSuffix, "bbb")(t, dir)
		}, [4]FileState{FileUnknown, FilePartial, FileUnknown, FileOK}, 3},
		{"unfinished, and another wrong", func(t *testing.T, dir string) {
			remove("b")(t, dir)
			write("b"+partSuffix, "bbbb")(t, dir)
			write("c", strings.Repeat("c", 19)+"x")(t, dir)
		}, [4]FileState{FileOK, FilePartial, FileDamaged, FileOK}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			_, l := dataset(t, dir, 8, files)
			c.change(t, dir)
			r, err := Stored{Kind: KindFile, Dir: dir, Layout: l}.Check(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var got [4]FileState
			for i, f := range r.Files {
				got[i] = f.State
			}
			if got != c.want || r.GoodPieces() != c.good {
				t.Errorf("%v with %d good pieces, want %v with %d", got, r.GoodPieces(), c.want, c.good)
			}
			if r.Complete() != (c.name == "right") {
				t.Error("complete:", r.Complete())
			}
		})
	}
}

// Of a selection only the wanted files count, with what their neighbours have of shared pieces. The
// record knows the last selection.
func TestCheckWanted(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		info, l, data := shape(t, 10_000, 35_000, 25_000, 12_000, 8000)
		dir := fastDir(t)
		stored := Stored{kind, dir, metainfo.Hash{9}, l}
		want := func(wanted ...bool) Options {
			return Options{Wanted: func(metainfo.Hash, Layout) []bool { return slices.Clone(wanted) }}
		}
		s, tor := openStore(t, kind, dir, info, want(false, true, false, false))
		for p := 3; p < 6; p++ {
			if err := writePiece(tor, info, data, p); err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, s, tor)
		wanted := stored.Wanted()
		if !slices.Equal(wanted, []bool{false, true, false, false}) {
			t.Fatalf("the record says that %v were wanted", wanted)
		}
		states := func(wanted []bool) (out [4]FileState, r Report) {
			r, err := stored.CheckWanted(t.Context(), wanted, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, f := range r.Files {
				out[i] = f.State
			}
			return out, r
		}
		got, r := states(wanted)
		if got != [4]FileState{FileSkipped, FileOK, FileSkipped, FileSkipped} || !r.Complete() || r.Pieces != 3 || r.GoodPieces() != 3 {
			t.Errorf("%v, %+v", got, r)
		}
		if got, r := states(nil); got[0] != FilePartial || got[1] != FileOK || got[3] != FileMissing || r.Complete() || r.Pieces != 8 || r.GoodPieces() != 3 {
			t.Errorf("of all files: %v, %+v", got, r)
		}
		if kind != KindBolt {
			if err := os.Remove(filepath.Join(dir, l.Files[0].Path+partSuffix)); err != nil {
				t.Fatal(err)
			}
			f := func() FileReport { _, r := states(wanted); return r.Files[1] }()
			if f.State != FileUnknown || f.GoodPieces != 2 || f.BadPieces != 1 || f.Lacks != l.Files[0].Path {
				t.Errorf("without its neighbour: %+v", f)
			}
		}
		s, tor = openStore(t, kind, dir, info) // does not say
		closeStore(t, s, tor)
		if !slices.Equal(stored.Wanted(), wanted) {
			t.Error("the selection is forgotten")
		}
		s, tor = openStore(t, kind, dir, info, want(true, true, true, true))
		closeStore(t, s, tor)
		if wanted := stored.Wanted(); wanted != nil {
			t.Errorf("all files are wanted, and the record says %v", wanted)
		}
	})
}

// A file with a piece of which only some blocks were stored is unfinished, not damaged.
func TestCheckUnfinished(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		info, l, data := shape(t, 64<<10, 300_000)
		dir := fastDir(t)
		s, tor := openStore(t, kind, dir, info)
		for p := range l.Pieces() - 1 {
			if err := writePiece(tor, info, data, p); err != nil {
				t.Fatal(err)
			}
		}
		writeBlock(t, tor, info, data, l.Pieces()-1, blocksOf(l, l.Pieces()-1)[1])
		closeStore(t, s, tor)
		r, err := (Stored{kind, dir, metainfo.Hash{9}, l}).Check(t.Context(), nil)
		if err != nil || r.Files[0].State != FilePartial || r.GoodPieces() != l.Pieces()-1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// The record's life: what was checkpointed is trusted at the next open, as long as nobody touches
// the files.
func TestRecord(t *testing.T) {
	hash := metainfo.Hash{1}
	files := map[string]string{"a": strings.Repeat("a", 16), "b": strings.Repeat("b", 16)} // pieces 0, 1 and 2, 3
	a := filepath.Join("set", "a")
	chtimes := func(t *testing.T, dir string) {
		if err := os.Chtimes(filepath.Join(dir, a), time.Time{}, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name    string
		touch   func(t *testing.T, dir string)
		recheck bool
		known   [4]bool
		right   [4]bool
	}{
		{"untouched", nil, false, [4]bool{true, true, true, true}, [4]bool{true, true, true, false}},
		{"recheck", nil, true, [4]bool{}, [4]bool{}},
		{"changed", chtimes, false, [4]bool{false, false, true, true}, [4]bool{false, false, true, false}},
		{"removed", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, a)); err != nil {
				t.Fatal(err)
			}
		}, false, [4]bool{true, true, true, true}, [4]bool{false, false, true, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			_, l := dataset(t, dir, 8, files)
			open := func(recheck func(metainfo.Hash) bool) (*store, *record, recorded) {
				t.Helper()
				s, err := Open(KindFile, dir, slog.New(slog.DiscardHandler), Options{Recheck: recheck})
				if err != nil {
					t.Fatal(err)
				}
				r, known, err := s.(*store).openRecord(hash, l, false, nil)
				if err != nil {
					t.Fatal(err)
				}
				return s.(*store), r, known
			}
			s, r, known := open(nil)
			if len(known.changed) != 2 {
				t.Fatal(known)
			}
			if got := r.pieces.get(3); got.Ok {
				t.Errorf("before a check: %+v", got)
			}
			changed := map[int]bool{0: true, 1: true}
			left := func(i int) stamp {
				s, err := stampOf(dir, l.Files[i])
				if err != nil {
					t.Error(err)
				}
				return s
			}
			for p := range 4 {
				// A file is not vouched for before all of its pieces were checked.
				if r.pieces.set(p, p != 3); p == 3 {
					if err := r.remove(false, p); err != nil {
						t.Fatal(err)
					}
				}
				r.pieces.note()
				if err := r.checkpoint(nil, changed, left); err != nil {
					t.Fatal(err)
				}
				if want := []int{2, 1, 1, 0}[p]; len(changed) != want {
					t.Errorf("%d files wait after piece %d, want %d", len(changed), p, want)
				}
			}
			if err := s.Close(); err != nil { // what a kill would leave is no different
				t.Fatal(err)
			}
			if c.touch != nil {
				c.touch(t, dir)
			}
			if c.recheck {
				s, _, _ = open(anyTorrent)
				if err := s.Close(); err != nil { // it is killed before anything is hashed
					t.Fatal(err)
				}
			}
			s, r, _ = open(nil)
			defer s.Close()
			var checked, right [4]bool
			for p := range 4 {
				got := r.pieces.get(p)
				checked[p], right[p] = got.Ok, got.Complete
			}
			if checked != c.known || right != c.right {
				t.Errorf("known %v, right %v; want %v, %v", checked, right, c.known, c.right)
			}
		})
	}
}

func TestOneStoreForADirectory(t *testing.T) {
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	s, err := Open("file", dir, log, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := Open("file", dir, log, Options{}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("another braid is using it (process %d: ", os.Getpid())) {
		t.Errorf("a second store: %v", err)
	}
	if _, err := Open("floppy", t.TempDir(), log, Options{}); err == nil {
		t.Error("an unknown kind was opened")
	}
}

// A damaged record is set aside, and the data is checked; that of another format is left alone.
func TestDamagedRecordIsSetAside(t *testing.T) {
	info, l, data := shape(t, 32<<10, 100_000)
	for name, asides := range map[string]int{recordName(metainfo.Hash{9}, KindFile): 1, recordDir + "/completion.db": 0} {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(dir, recordDir), 0o755), put(l.Files[0].Path, data, 0o644)(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("not a record", 1000)), 0o644); err != nil {
			t.Fatal(err)
		}
		s, tor := openStore(t, KindFile, dir, info)
		for p := range l.Pieces() {
			if c := tor.Piece(info.Piece(p)).Completion(); c.Ok || !hashAndMark(t, tor.Piece(info.Piece(p)), info, p) {
				t.Errorf("piece %d: %+v", p, c)
			}
		}
		closeStore(t, s, tor)
		aside, err := filepath.Glob(filepath.Join(dir, recordDir, "*.damaged"))
		if err != nil || len(aside) != asides {
			t.Errorf("set aside: %v, %v", aside, err)
		}
		if !(Stored{KindFile, dir, metainfo.Hash{9}, l}).Trusted() {
			t.Error("the next start checks again")
		}
	}
}

// A record with any content is read, or damaged.
func FuzzRecord(f *testing.F) {
	l := Layout{PieceLength: 150_000, Length: 400_000, Files: []File{{"a", 200_000, 0}, {"b", 190_000, 210_000}}}
	s := newState(l)
	s.Blocks[1] = bitset{0xff, 0x80}
	whole, err := s.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[len(durable.Seal(recordMagic, nil)):])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		b := durable.Seal(recordMagic, body)
		if saved, err := decodeState(b, l); err == nil {
			saved.compare(l, []stamp{noFile, {size: 5}})
		} else if !errors.Is(err, durable.ErrDamaged) {
			t.Error(err)
		}
		b[len(b)-1] ^= 1
		if _, err := decodeState(b, l); !errors.Is(err, durable.ErrDamaged) {
			t.Errorf("damage is not noticed: %v", err)
		}
	})
}

// A file behind a link that leads out of the directory cannot be served, and a check says so.
func TestCheckLink(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	_, l := dataset(t, dir, 8, map[string]string{"a": "aaaaaaaa", "b": "bbbbbbbb"})
	name, away := filepath.Join(dir, "set", "b"), filepath.Join(outside, "b")
	if err := errors.Join(os.Rename(name, away), os.Symlink(away, name)); err != nil {
		t.Fatal(err)
	}
	r, err := Stored{Kind: KindFile, Dir: dir, Layout: l}.Check(t.Context(), nil)
	if err != nil || r.Files[0].State != FileOK || r.Files[1].State != FileDamaged || r.Files[1].Error == "" {
		t.Errorf("%+v, %v", r.Files, err)
	}
}

// A link that lies in the directory already does not lead a download out of it.
func TestSymbolicLinks(t *testing.T) {
	for _, link := range []string{"set", "set/sub", "set/sub/file", "set/sub/file.part"} {
		t.Run(link, func(t *testing.T) {
			dir, outside := t.TempDir(), t.TempDir()
			path := filepath.Join(dir, filepath.FromSlash(link))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(outside, path); err != nil {
				t.Fatal(err)
			}
			s, err := Open("file", dir, slog.New(slog.DiscardHandler), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			info := metainfo.Info{Name: "set", PieceLength: 16384, Pieces: make([]byte, 20), Files: []metainfo.FileInfo{{Length: 5, Path: []string{"sub", "file"}}}}
			if _, err := s.OpenTorrent(t.Context(), &info, metainfo.Hash{1}); err == nil || !strings.Contains(err.Error(), "symbolic link") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A torrent of a few hundred bytes may claim pieces of 256 MiB. To hash what is there of them takes
// no more memory than with any other.
func TestHashingMemory(t *testing.T) {
	info := metainfo.Info{Name: "set", PieceLength: maxPiece, Length: 2 * maxPiece, Pieces: make([]byte, 40)}
	l, err := NewLayout(&info)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s, tor := openStore(t, KindBolt, dir, &info)
	closeStore(t, s, tor)
	if err := os.WriteFile(filepath.Join(dir, "set"), []byte("short"), 0o644); err != nil {
		t.Fatal(err)
	}
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	for _, kind := range kinds {
		before := allocated()
		if _, err := (Stored{kind, dir, metainfo.Hash{9}, l}).Check(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if n := allocated() - before; n > 16<<20 {
			t.Errorf("%s: to check took %d bytes", kind, n)
		}
	}
}

// A pipe in the place of a file is damage, not a wait for somebody to write into it.
func TestCheckPipe(t *testing.T) {
	dir := t.TempDir()
	_, l := dataset(t, dir, 8, map[string]string{"a": "0123456789"})
	name := filepath.Join(dir, "set", "a")
	if err := errors.Join(os.Remove(name), exec.Command("mkfifo", name).Run()); err != nil {
		t.Fatal(err)
	}
	r, err := Stored{Kind: KindFile, Dir: dir, Layout: l}.Check(t.Context(), nil)
	if err != nil || r.Files[0].State != FileDamaged || r.GoodPieces() != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
