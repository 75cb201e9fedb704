package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"
)

// many is a torrent of more small files than are kept open, pieces of which span several, with one
// empty file.
func many(t *testing.T) (info *metainfo.Info, data []byte) {
	t.Helper()
	files := map[string]string{"empty": ""}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 3 * maxOpenFiles {
		b := make([]byte, 1+random.IntN(60))
		for j := range b {
			b[j] = byte(random.IntN(256))
		}
		files[fmt.Sprintf("d%d/f%03d", i%7, i)] = string(b)
	}
	dir := t.TempDir()
	set, l := dataset(t, dir, 64, files)
	r, err := readFiles(dir, l, false)
	if err != nil {
		t.Fatal(err)
	}
	data = make([]byte, l.Length)
	if err := errors.Join(r.read(data, 0), r.close()); err != nil {
		t.Fatal(err)
	}
	return &set, data
}

func openStore(t *testing.T, kind Kind, dir string, info *metainfo.Info, opts ...Options) (Store, engine.TorrentImpl) {
	t.Helper()
	s, err := Open(kind, dir, slog.New(slog.DiscardHandler), append(opts, Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	tor, err := s.OpenTorrent(context.Background(), info, metainfo.Hash{9})
	if err != nil {
		t.Fatal(err)
	}
	return s, tor
}

// settled reads a piece as the engine does before it marks it.
func settled(tor engine.TorrentImpl, info *metainfo.Info, p int) error {
	_, err := tor.Piece(info.Piece(p)).ReadAt(make([]byte, info.Piece(p).Length()), 0)
	return err
}

func closeStore(t *testing.T, s Store, tor engine.TorrentImpl) {
	t.Helper()
	if err := errors.Join(tor.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// fillStore stores all pieces, and closes the store.
func fillStore(t *testing.T, kind Kind, dir string, info *metainfo.Info, data []byte) {
	t.Helper()
	s, tor := openStore(t, kind, dir, info)
	for p := range info.NumPieces() {
		if err := writePiece(tor, info, data, p); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s, tor)
}

// File names may be as long as file systems allow. Incomplete files get shorter names. These differ
// even if the complete names differ only at their end.
func TestLongNames(t *testing.T) {
	info, _, data := shape(t, 16<<10, 32<<10, 32<<10)
	long := strings.Repeat("é", 127)
	for i := range info.Files {
		info.Files[i].Path = []string{long + "d", fmt.Sprint(long, i)}
	}
	l, err := NewLayout(info)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []Kind{KindFile, KindMmap} {
		dir := t.TempDir()
		for first := range 2 { // the second process finds what the first one has left
			s, tor := openStore(t, kind, dir, info)
			for p := first; p < 4; p += 2 {
				if c := tor.Piece(info.Piece(1 - first)).Completion(); c.Complete != (first == 1) {
					t.Errorf("%s: piece %d: %+v", kind, 1-first, c)
				}
				if err := writePiece(tor, info, data, p); err != nil {
					t.Fatal(err)
				}
			}
			closeStore(t, s, tor)
			r, err := Stored{kind, dir, metainfo.Hash{9}, l}.Check(t.Context(), nil)
			if want := []FileState{FilePartial, FileOK}[first]; err != nil || r.Files[1].State != want {
				t.Errorf("%s: %v after run %d, %v", kind, r.Files[1].State, first+1, err)
			}
		}
		sameData(t, dir, l, data)
	}
	dir, aside := t.TempDir(), "" // somebody's file has the same name
	if err := put(l.Files[1].Path, []byte("other"), 0o644)(dir); err != nil {
		t.Fatal(err)
	}
	moved := func(_, to string) { aside = to }
	s, tor := openStore(t, KindFile, dir, info, Options{Existing: RenameExisting, Moved: moved})
	if b, err := os.ReadFile(aside); err != nil || string(b) != "other" {
		t.Errorf("it is now %q: %q, %v", aside, b, err)
	}
	closeStore(t, s, tor)
}

// Another program writes over a file that is served, or only touches it. Its pieces are checked
// again, and wrong ones are not served; the file keeps its name.
func TestServedFileIsChanged(t *testing.T) { synctest.Test(t, servedFileIsChanged) }

func servedFileIsChanged(t *testing.T) {
	for _, kind := range []Kind{KindFile, KindMmap} {
		for _, verified := range []bool{false, true} {
			info, l, data := shape(t, 16<<10, 48<<10, 16<<10)
			dir := t.TempDir()
			fillStore(t, kind, dir, info, data)
			s, tor := openStore(t, kind, dir, info)
			if verified {
				closeStore(t, s, tor)
				var err error
				if s, err = OpenVerifiedIn(kind, dir, slog.New(slog.DiscardHandler), nil); err == nil {
					tor, err = s.OpenTorrent(t.Context(), info, metainfo.Hash{9})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			name := filepath.Join(dir, filepath.FromSlash(l.Files[0].Path))
			file, err := os.OpenFile(name, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			served := func() (out [4]bool) {
				for p := range out {
					got := make([]byte, 100)
					_, err := tor.Piece(info.Piece(p)).ReadAt(got, 50)
					out[p] = err == nil && bytes.Equal(got, data[p<<14+50:][:100])
				}
				return out
			}
			for i, c := range []struct {
				write int64 // where; -1: nowhere
				want  [4]bool
			}{
				{-1, [4]bool{true, true, true, true}},
				{16 << 10, [4]bool{true, false, true, true}},
				{32 << 10, [4]bool{true, false, false, true}},
			} {
				if c.write >= 0 {
					if _, err := file.WriteAt([]byte("other"), c.write); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.Chtimes(name, time.Time{}, time.Unix(int64(i), 0)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(inspectEvery)
				if got := served(); got != c.want {
					t.Errorf("%s, verified %v, write at %d: served %v, want %v", kind, verified, c.write, got, c.want)
				}
			}
			if got := tor.Piece(info.Piece(1)).Completion(); got.Complete {
				t.Error("a wrong piece counts as complete")
			}
			if _, err := os.Lstat(name); err != nil {
				t.Error(err)
			}
			closeStore(t, s, tor)
			if r := (Stored{kind, dir, metainfo.Hash{9}, l}).Recorded(); !slices.Equal(r, []bool{false, false, false, true}) {
				t.Errorf("the record trusts %v of a changed file", r)
			}
		}
	}
}

func TestFileNamesTellWhatIsComplete(t *testing.T) {
	for _, kind := range []Kind{KindFile, KindMmap} {
		t.Run(string(kind), func(t *testing.T) { fileNames(t, kind) })
	}
}

func fileNames(t *testing.T, kind Kind) {
	files := map[string]string{"a": "0123456789abcdef", "b": "ghij"} // a: pieces 0 and 1, b: piece 2
	set, _ := dataset(t, t.TempDir(), 8, files)
	info, dir := &set, t.TempDir()
	s, tor := openStore(t, kind, dir, info)
	names := func() (out []string) {
		for _, n := range []string{"a", "a.part", "b", "b.part"} {
			if _, err := os.Lstat(filepath.Join(dir, "set", n)); err == nil {
				out = append(out, n)
			}
		}
		return out
	}
	check := func(step string, want ...string) {
		t.Helper()
		if got := names(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: files %v, want %v", step, got, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(p int, b string) {
		_, err := tor.Piece(info.Piece(p)).WriteAt([]byte(b), 0)
		must(err)
	}
	check("nothing written")
	if _, err := tor.Piece(info.Piece(0)).ReadAt(make([]byte, 8), 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read of what is not there: %v", err)
	}
	write(0, "01234567")
	must(settled(tor, info, 0))
	check("one piece written", "a.part")
	must(tor.Piece(info.Piece(0)).MarkComplete())
	write(1, "89abcdef")
	must(settled(tor, info, 1))
	check("one piece of two right", "a.part")
	must(tor.Piece(info.Piece(1)).MarkComplete())
	check("both right", "a")
	write(2, "ghij")
	must(settled(tor, info, 2))
	must(tor.Piece(info.Piece(2)).MarkComplete())
	check("all right", "a", "b")
	must(tor.Piece(info.Piece(1)).MarkNotComplete())
	check("one found wrong later", "a.part", "b")
	write(1, "89abcdef")
	must(settled(tor, info, 1))
	must(tor.Piece(info.Piece(1)).MarkComplete())
	check("mended", "a", "b")
	closeStore(t, s, tor)

	// The files are there without a record: they are checked, and the check is stopped after one
	// piece of two.
	must(errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "set"), 0o755)))
	for n, b := range files {
		must(os.WriteFile(filepath.Join(dir, "set", n), []byte(b), 0o644))
	}
	s, tor = openStore(t, kind, dir, info)
	must(tor.Piece(info.Piece(0)).MarkComplete())
	check("one of two checked", "a", "b")
	closeStore(t, s, tor)
	check("check stopped", "a", "b")
	s, tor = openStore(t, kind, dir, info)
	write(1, "89abcdef")
	must(settled(tor, info, 1))
	check("the other one written", "a.part", "b")
	closeStore(t, s, tor)
}

// Pieces reach the record only after a sync; what was marked since is hashed again after a crash.
func TestRecordFollowsTheData(t *testing.T) {
	info, data := many(t)
	s, tor := openStore(t, KindFile, t.TempDir(), info)
	defer closeStore(t, s, tor)
	f := tor.Piece(info.Piece(0)).(piece).torrent
	saved := func() (n int) {
		rec := f.record
		rec.mu.Lock()
		defer rec.mu.Unlock()
		for _, ok := range rec.saved.Pieces.bools(info.NumPieces()) {
			if ok {
				n++
			}
		}
		return n
	}
	mark := func(from, to int) {
		for p := from; p < to; p++ {
			mp := info.Piece(p)
			if _, err := tor.Piece(mp).WriteAt(data[mp.Offset():mp.Offset()+mp.Length()], 0); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(settled(tor, info, p), tor.Piece(mp).MarkComplete()); err != nil {
				t.Fatal(err)
			}
		}
	}
	mark(0, 3) // few files: synced one by one
	if n := saved(); n != 0 {
		t.Errorf("%d pieces in the record before a sync", n)
	}
	if err := f.sync(); err != nil || saved() != 3 {
		t.Errorf("after a sync: %d pieces, %v", saved(), err)
	}
	mark(3, info.NumPieces()) // many: the file system at once
	if err := f.sync(); err != nil || saved() != info.NumPieces() {
		t.Errorf("after another: %d pieces, %v", saved(), err)
	}
}

// What cannot be written is an error of the next write, and of the piece when it is read: once
// each.
func TestWriteBufferTellsOfFailures(t *testing.T) {
	full := errors.New("no space")
	w := newWriteBuffer(Layout{PieceLength: 8, Length: 80}, nil, func(_ []byte, off int64) error {
		if off == 8 {
			return full
		}
		return nil
	}, func() {})
	defer w.close()
	put := func(piece int) error { return w.put(piece, []byte("12345678"), int64(8*piece)) }
	for i, step := range []struct {
		got  error
		want error
	}{
		{put(0), nil}, {w.flushPiece(0), nil},
		{put(1), nil}, {w.flushPiece(1), full}, {w.flushPiece(1), nil},
		{put(2), full}, {put(2), nil}, {w.flushPiece(2), nil}, {w.flushPiece(3), nil},
	} {
		if !errors.Is(step.got, step.want) {
			t.Errorf("step %d: %v, want %v", i, step.got, step.want)
		}
	}
}

// What was put is written, also if close comes before the writer's first step, or just after one.
func TestWriteBufferClosesWithEverything(t *testing.T) {
	const times = 100_000
	var written atomic.Int64
	for range times {
		w := newWriteBuffer(Layout{PieceLength: 8, Length: 80}, nil, func(b []byte, _ int64) error {
			written.Add(int64(len(b)))
			return nil
		}, func() {})
		for piece, b := range []string{"12345678", "12345"} {
			if err := w.put(piece, []byte(b), int64(8*piece)); err != nil {
				t.Fatal(err)
			}
		}
		w.close()
	}
	if got := written.Load(); got != times*13 {
		t.Errorf("%d of %d bytes were not written", times*13-got, times*13)
	}
}

// What happens to files behind the back of whoever has them open is found when the data is settled,
// and only that.
func TestSettleFindsWhatIsGone(t *testing.T) {
	for _, kind := range []Kind{KindFile, KindMmap} {
		for _, c := range []struct {
			name string
			harm func(name string) error
			want []int
		}{
			{"nothing", func(string) error { return nil }, nil},
			{"deleted", os.Remove, []int{1, 2, 3}},
			{"cut short", func(name string) error { return os.Truncate(name, 5) }, []int{1, 2, 3}},
			{"longer", func(name string) error { return os.Truncate(name, 1<<20) }, []int{1, 2, 3}},
			{"cut and grown again", func(name string) error {
				return errors.Join(os.Truncate(name, 5), os.Truncate(name, 100_000))
			}, []int{1, 2, 3}},
			{"another", func(name string) error {
				return errors.Join(os.WriteFile(name+"2", make([]byte, 100_000), 0o644), os.Rename(name+"2", name))
			}, []int{1, 2, 3}},
		} {
			t.Run(string(kind)+" "+c.name, func(t *testing.T) {
				info, l, data := shape(t, 32<<10, 32<<10, 100_000, 70_000) // pieces 0; 1 to 4; 4 to 6
				dir := fastDir(t)
				s, tor := openStore(t, kind, dir, info)
				for _, p := range []int{0, 1, 2, 3} {
					if err := writePiece(tor, info, data, p); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.harm(filepath.Join(dir, filepath.FromSlash(l.Files[1].Path)+partSuffix)); err != nil {
					t.Fatal(err)
				}
				gone, err := SyncAndCheck(s, metainfo.Hash{9})
				if err != nil || !slices.Equal(gone, c.want) {
					t.Errorf("gone: %v, %v; want %v", gone, err, c.want)
				}
				for p := range 4 {
					if got := tor.Piece(info.Piece(p)).Completion().Complete; got == slices.Contains(gone, p) {
						t.Errorf("piece %d: complete %v", p, got)
					}
				}
				for p := range l.Pieces() { // and all can be had again
					if err := writePiece(tor, info, data, p); err != nil {
						t.Fatal(err)
					}
				}
				if gone, err := SyncAndCheck(s, metainfo.Hash{9}); err != nil || len(gone) > 0 {
					t.Errorf("in the end %v are gone, %v", gone, err)
				}
				closeStore(t, s, tor)
				if r, err := (Stored{kind, dir, metainfo.Hash{9}, l}).Check(t.Context(), nil); err != nil || !r.Complete() {
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
	}
}

// Blocks leave memory in chunks, whatever their order; what is not whole leaves when its piece is
// read, or when many pieces are begun, so that memory is bounded.
func TestBehindWritesChunks(t *testing.T) {
	const block = 16 << 10
	l := Layout{PieceLength: 1 << 20, Length: 100 << 20}
	var mu sync.Mutex
	var writes []extent
	w := newWriteBuffer(l, nil, func(b []byte, off int64) error {
		mu.Lock()
		defer mu.Unlock()
		writes = append(writes, extent{int(off), int(off) + len(b)})
		return nil
	}, func() {})
	put := func(piece, n int) {
		if err := w.put(piece, make([]byte, block), int64(piece)<<20+int64(n*block)); err != nil {
			t.Fatal(err)
		}
	}
	taken := func() []extent {
		mu.Lock()
		defer mu.Unlock()
		defer func() { writes = nil }()
		slices.SortFunc(writes, func(a, b extent) int { return a.from - b.from })
		return writes
	}
	for _, n := range rand.Perm(64) {
		put(3, n)
	}
	if err := w.flushPiece(3); err != nil {
		t.Fatal(err)
	}
	begin := 3 << 20
	if got := taken(); len(got) != 4 || got[0] != (extent{begin, begin + chunkSize}) || got[3].to != begin+1<<20 {
		t.Errorf("a whole piece was written as %v", got)
	}
	put(5, 1)
	put(5, 2)
	put(5, 9)
	if err := w.flushPiece(5); err != nil {
		t.Fatal(err)
	}
	begin = 5 << 20
	if got := taken(); !slices.Equal(got, []extent{{begin + block, begin + 3*block}, {begin + 9*block, begin + 10*block}}) {
		t.Errorf("parts of a piece were written as %v", got)
	}
	for piece := range 100 {
		put(piece, 0)
	}
	w.mu.Lock()
	if w.held > maxMemory/chunkSize {
		t.Errorf("%d chunks in memory", w.held)
	}
	w.mu.Unlock()
	w.close()
	if got := taken(); len(got) != 100 {
		t.Errorf("%d of 100 pieces' blocks were written", len(got))
	}
}

// A piece lies in two files, and the first cannot get its final name. The second gets its own
// nevertheless, and the first one when the data is settled.
func TestOneNameIsRefused(t *testing.T) {
	info, l, data := shape(t, 16<<10, 10<<10, 6<<10)
	dir := fastDir(t)
	a, b := filepath.FromSlash(l.Files[0].Path), filepath.FromSlash(l.Files[1].Path)
	sys := failing{name: a}
	s, tor := openStore(t, KindFile, dir, info, Options{system: &sys})
	if err := writePiece(tor, info, data, 0); err == nil {
		t.Error("a refused name is no error")
	}
	sys.name = ""
	if lost, err := SyncAndCheck(s, metainfo.Hash{9}); err != nil || len(lost) > 0 {
		t.Errorf("lost are %v, %v", lost, err)
	}
	for _, name := range []string{a, b} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	closeStore(t, s, tor)
}

// renaming is a system that refuses to give files other names, while refuses is set.
type renaming struct {
	realSystem
	refuses atomic.Bool
}

func (r *renaming) Rename(root *os.Root, from, to string) error {
	if r.refuses.Load() && !strings.HasPrefix(from, recordDir) {
		return syscall.ENOSPC
	}
	return r.realSystem.Rename(root, from, to)
}

// A file cannot get its final name, and another one was cut. The attempt that fails at the first
// must not hide the second from the next attempt.
func TestLossIsFoundAfterFailure(t *testing.T) {
	info, l, data := shape(t, 16<<10, 32<<10, 32<<10)
	dir := fastDir(t)
	sys := &renaming{}
	s, tor := openStore(t, KindFile, dir, info, Options{system: sys})
	for p := range l.Pieces() {
		sys.refuses.Store(p == 3)
		if err := writePiece(tor, info, data, p); (err != nil) != (p == 3) {
			t.Fatal(p, err)
		}
	}
	if err := os.Truncate(filepath.Join(dir, filepath.FromSlash(l.Files[0].Path)), 5); err != nil {
		t.Fatal(err)
	}
	if lost, err := SyncAndCheck(s, metainfo.Hash{9}); !IsFull(err) {
		t.Fatalf("%v, %v", lost, err)
	}
	sys.refuses.Store(false)
	lost, err := SyncAndCheck(s, metainfo.Hash{9})
	if err != nil || !slices.Equal(lost, []int{0, 1}) {
		t.Errorf("lost are %v, %v; want 0 and 1", lost, err)
	}
	closeStore(t, s, tor)
}

// afterWrite is a system that does something after a write, before the store knows that the write
// has ended.
type afterWrite struct {
	realSystem
	do atomic.Pointer[func()]
}

func (a *afterWrite) Write(f *os.File, b []byte, off int64) (int, error) {
	n, err := a.realSystem.Write(f, b, off)
	if do := a.do.Swap(nil); do != nil {
		(*do)()
	}
	return n, err
}

// A write that is under way when the data is settled is not taken for somebody else's.
func TestSettleDuringWrite(t *testing.T) {
	info, l, data := shape(t, 16<<10, 48<<10)
	sys := &afterWrite{}
	s, tor := openStore(t, KindFile, fastDir(t), info, Options{system: sys})
	if err := writePiece(tor, info, data, 0); err != nil {
		t.Fatal(err)
	}
	settle := func() {
		if lost, err := SyncAndCheck(s, metainfo.Hash{9}); err != nil || len(lost) > 0 {
			t.Errorf("lost are %v, %v", lost, err)
		}
	}
	sys.do.Store(&settle)
	for p := 1; p < l.Pieces(); p++ {
		if err := writePiece(tor, info, data, p); err != nil {
			t.Fatal(err)
		}
	}
	settle()
	closeStore(t, s, tor)
}

// Somebody puts a directory, or a link to the file, in the place of a file that is served. It keeps
// its name.
func TestDirectoryKeepsItsName(t *testing.T) {
	info, l, data := shape(t, 16<<10, 32<<10)
	for _, put := range []func(name string) error{
		func(name string) error { return os.Mkdir(name, 0o755) },
		func(name string) error { return os.Symlink(name+".away", name) },
	} {
		dir := fastDir(t)
		fillStore(t, KindFile, dir, info, data)
		s, tor := openStore(t, KindFile, dir, info)
		name := filepath.Join(dir, filepath.FromSlash(l.Files[0].Path))
		if err := errors.Join(os.Rename(name, name+".away"), put(name)); err != nil {
			t.Fatal(err)
		}
		p := tor.Piece(info.Piece(0))
		if _, err := p.ReadAt(make([]byte, 10), 0); err == nil {
			t.Error("it can be read")
		}
		if err := p.MarkNotComplete(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(name); err != nil {
			t.Error(err)
		}
		if err := writePiece(tor, info, data, 0); err == nil {
			t.Error("no error says what is in the way")
		}
		if _, err := os.Lstat(name); err != nil {
			t.Error(err)
		}
		if err := errors.Join(tor.Close(), s.Close()); err != nil {
			t.Log(err)
		}
	}
}
