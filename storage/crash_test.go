package storage

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anacrolix/torrent/metainfo"
	"go.etcd.io/bbolt"

	"braid/storage/boltdb"
)

// powerLoss is a system whose disk, when the power fails, has of each file what was synced, and of
// what was written since any part or none, page by page. It keeps the synced content of each file
// beside the directory.
//
// bbolt syncs its data pages, then writes its meta page, and syncs that. A failure in the middle of
// a transaction is either before the first sync is through, with any of the data pages and no meta,
// or after it, with all of them.
type powerLoss struct {
	realSystem
	dir    string
	random *rand.Rand
	t      *testing.T
	crash  func(image string) // called with a directory as it would be found

	mu      sync.Mutex
	durable map[string]kept // by path below dir; no entry: it is not there after a crash
	before  map[string]kept // of files that were replaced since the last sync of a directory: what they were
}

type kept struct {
	data []byte
	mod  fs.FileInfo
}

// fastDir is a directory in memory, if there is one: syncs of a disk take most of the time of these
// tests, and a real one proves nothing that the simulated loss does not.
func fastDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "braid-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

const diskPage = 4096

// Sync brings a file, or the names in a directory, to disk.
func (p *powerLoss) Sync(f *os.File) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crashNow(nil) // just before
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.IsDir() {
		clear(p.before)
		return nil
	}
	rel, err := filepath.Rel(p.dir, p.nameOf(st))
	if err != nil {
		return err
	}
	p.keep(rel)
	return nil
}

// Rename waits while somebody looks at the directory: what a crash leaves has a file under one name
// or the other.
func (p *powerLoss) Rename(in *os.Root, from, to string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := in.Lstat(to)
	replaces := err == nil
	if err := p.realSystem.Rename(in, from, to); err != nil {
		return err
	}
	was := p.durable[to]
	delete(p.durable, to)
	if now, ok := p.durable[from]; ok {
		p.durable[to] = now
		delete(p.durable, from)
	} else if replaces {
		p.t.Errorf("%s was not synced before it replaced %s", from, to)
	}
	if replaces { // until the directory is synced, either may be found
		p.before[to] = was
		p.crashNow(nil)
	}
	return nil
}

// nameOf finds the present name of an open file, which may have been renamed.
func (p *powerLoss) nameOf(want fs.FileInfo) (name string) {
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if st, err := d.Info(); err == nil && os.SameFile(st, want) {
			name = path
		}
		return nil
	})
	if err != nil || name == "" {
		p.t.Error("a file without a name was synced:", err)
	}
	return name
}

func (p *powerLoss) keep(rel string) {
	b, err := os.ReadFile(filepath.Join(p.dir, rel))
	if err != nil {
		p.t.Error(err)
		return
	}
	st, err := os.Stat(filepath.Join(p.dir, rel))
	if err != nil {
		p.t.Error(err)
		return
	}
	p.durable[rel] = kept{b, st}
}

func (p *powerLoss) syncAll(*os.File) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crashNow(nil)
	for _, rel := range p.files() {
		if !strings.HasSuffix(rel, ".db") {
			p.keep(rel)
		}
	}
	return nil
}

func (p *powerLoss) files() (out []string) {
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(p.dir, path)
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		p.t.Error(err)
	}
	return out
}

func (p *powerLoss) update(db *boltdb.DB, do func(tx *bbolt.Tx) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	rel, err := filepath.Rel(p.dir, db.Path())
	if err != nil {
		return err
	}
	p.crashNow(nil)
	if _, ok := p.durable[rel]; !ok {
		p.keep(rel) // bbolt has synced it when it made it
	}
	before := p.durable[rel].data
	if err := db.Update(do); err != nil {
		return err
	}
	p.keep(rel)
	after := p.durable[rel].data
	for range 2 {
		// Some data pages and no meta; all data pages and a meta of which some sectors were
		// written.
		half := make([]byte, len(after))
		copy(half, before)
		metaTorn := p.random.IntN(2) == 0
		for off := 2 * diskPage; off < len(after); off += diskPage {
			if metaTorn || p.random.IntN(2) == 0 {
				copy(half[off:off+diskPage], after[off:])
			}
		}
		if metaTorn {
			for off := 0; off < 2*diskPage; off += 512 {
				if p.random.IntN(2) == 0 {
					copy(half[off:off+512], after[off:])
				}
			}
		}
		p.crashNow(map[string][]byte{rel: half})
	}
	return nil
}

// crashNow shows what would be found. instead has files in the middle of a transaction.
func (p *powerLoss) crashNow(instead map[string][]byte) {
	image := fastDir(p.t)
	put := func(rel string, b []byte, st fs.FileInfo) {
		name := filepath.Join(image, rel)
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, b, 0o644),
			os.Chtimes(name, st.ModTime(), st.ModTime()))
		if err != nil {
			p.t.Error(err)
		}
	}
	live := map[string]bool{}
	for _, rel := range p.files() {
		live[rel] = true
		now, err := os.ReadFile(filepath.Join(p.dir, rel))
		if err != nil {
			p.t.Error(err)
			return
		}
		st, err := os.Stat(filepath.Join(p.dir, rel))
		if err != nil {
			p.t.Error(err)
			return
		}
		was, ok := p.durable[rel]
		switch {
		case instead[rel] != nil:
			put(rel, instead[rel], st)
		case p.before[rel].mod != nil && p.random.IntN(2) == 0:
			put(rel, p.before[rel].data, p.before[rel].mod)
		case strings.HasSuffix(rel, ".db"):
			if ok {
				put(rel, was.data, was.mod)
			}
		case !ok && p.random.IntN(2) == 0: // not even its name is there
		default:
			// The size and the time may be the newest, though the data is not.
			info := st
			if ok && p.random.IntN(2) == 0 {
				info = was.mod
			}
			b := make([]byte, info.Size())
			copy(b, was.data)
			for off := 0; off < len(b); off += diskPage {
				if off < len(now) && p.random.IntN(2) == 0 {
					copy(b[off:min(len(b), off+diskPage)], now[off:])
				}
			}
			put(rel, b, info)
		}
	}
	p.crash(image)
}

// What a power loss leaves is looked at file by file, while the download goes on: a file that gets
// its final name meanwhile is there under one of its names.
func TestPowerLossDuringRename(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	name := filepath.Join(dir, "a")
	if err := os.WriteFile(name+partSuffix, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	sys := &powerLoss{dir: dir, random: rand.New(rand.NewPCG(1, 2)), t: t, durable: map[string]kept{}, before: map[string]kept{}}
	sys.crash = func(string) {}
	var renaming sync.WaitGroup
	began := make(chan struct{})
	renaming.Go(func() {
		from, to := "a"+partSuffix, "a"
		for i := range 2000 {
			if err := sys.Rename(root, from, to); err != nil {
				t.Error(err)
			}
			if from, to = to, from; i == 0 {
				close(began)
			}
		}
	})
	<-began
	for range 200 {
		if err := sys.syncAll(nil); err != nil {
			t.Error(err)
		}
	}
	renaming.Wait()
}

// Tests with random damage try it so many times. All kinds of damage occur in few rounds; many find
// combinations of them.
const fewRounds, manyRounds = 40, 200

func TestPowerLoss(t *testing.T)      { losePower(t, fewRounds) }
func TestLargePowerLoss(t *testing.T) { losePower(t, manyRounds) }

// At every point where the power could fail, no piece is held to be right that is not, no block is
// named that is not on disk, and the download can go on.
func losePower(t *testing.T, rounds int) {
	t.Helper()
	t.Parallel()
	eachKind(t, func(t *testing.T, kind Kind) {
		points, claimed, named := 0, 0, 0
		for seed := uint64(0); points < rounds; seed++ {
			random := rand.New(rand.NewPCG(seed, 2))
			pieceLength := int64(12_000)
			lengths := []int64{40_000, 3000, 0, -(5000)}
			if seed%2 == 1 { // pieces of several blocks
				pieceLength = 80_000
				lengths = append(lengths, 200_000)
			}
			for range random.IntN(25) {
				lengths = append(lengths, 1+random.Int64N(9000))
			}
			info, l, data := shape(t, pieceLength, lengths...)
			dir := fastDir(t)
			sys := &powerLoss{dir: dir, random: rand.New(rand.NewPCG(seed, 3)), t: t, durable: map[string]kept{}, before: map[string]kept{}}
			sys.crash = func(image string) {
				points++
				s, tor := openStore(t, kind, image, info)
				for p := range l.Pieces() {
					mp := info.Piece(p)
					impl := tor.Piece(mp)
					if !impl.Completion().Complete {
						continue
					}
					claimed++
					got := make([]byte, mp.Length())
					if _, err := impl.ReadAt(got, 0); err != nil || !bytes.Equal(got, data[mp.Offset():mp.Offset()+mp.Length()]) {
						t.Errorf("seed %d, point %d: piece %d is falsely complete: %v", seed, points, p, err)
					}
				}
				on := BlocksOf(s, metainfo.Hash{9})
				for p := range l.Pieces() {
					for _, b := range blocksOf(l, p) {
						if !on.Has(p, b.begin, b.length) {
							continue
						}
						named++
						got := make([]byte, b.length)
						if err := on.Read(got, p, b.begin); err != nil || !bytes.Equal(got, data[info.Piece(p).Offset()+b.begin:][:b.length]) {
							t.Errorf("seed %d, point %d: the block at %d of piece %d is falsely named: %v", seed, points, b.begin, p, err)
						}
					}
				}
				closeStore(t, s, tor)
			}
			s, tor := openStore(t, kind, dir, info, Options{system: sys})
			for i, p := range random.Perm(l.Pieces()) {
				if other := random.IntN(l.Pieces()); !tor.Piece(info.Piece(other)).Completion().Complete { // a part of it
					for _, b := range blocksOf(l, other) {
						if random.IntN(2) == 0 {
							writeBlock(t, tor, info, data, other, b)
						}
					}
					if random.IntN(2) == 0 {
						tor.Piece(info.Piece(other)).(piece).torrent.writer.flush()
					}
					if err := tor.Piece(info.Piece(other)).(piece).torrent.sync(); err != nil {
						t.Fatal(err)
					}
				}
				if err := writePiece(tor, info, data, p); err != nil {
					t.Fatal(err)
				}
				if i > 0 && random.IntN(8) == 0 { // found wrong later, and fetched again
					if err := errors.Join(tor.Piece(info.Piece(p)).MarkNotComplete(), writePiece(tor, info, data, p)); err != nil {
						t.Fatal(err)
					}
				}
				if random.IntN(3) == 0 {
					if err := tor.Piece(info.Piece(p)).(piece).torrent.sync(); err != nil {
						t.Fatal(err)
					}
				}
			}
			closeStore(t, s, tor)
		}
		if claimed < points/2 || named < points/4 {
			t.Errorf("only %d pieces and %d blocks were there at %d points: this shows nothing", claimed, named, points)
		}
		t.Logf("%d points, %d pieces and %d blocks checked", points, claimed, named)
	})
}

func TestDamagedDatabases(t *testing.T)      { damageDatabases(t, fewRounds) }
func TestLargeDamagedDatabases(t *testing.T) { damageDatabases(t, manyRounds) }

// A damaged database never ends the process, nor makes a piece count that is not right, nor is in
// the way of the next start.
func damageDatabases(t *testing.T, rounds int) {
	t.Helper()
	t.Parallel()
	eachKind(t, func(t *testing.T, kind Kind) {
		info, l, data := shape(t, 30_000, repeat(5000, 40)...)
		master := fastDir(t)
		fillStore(t, kind, master, info, data)
		files := []string{recordName(metainfo.Hash{9}, kind)}
		if kind == KindBolt {
			files = append(files, boltPath(metainfo.Hash{9}))
		}
		random := rand.New(rand.NewPCG(5, uint64(len(kind))))
		aside := 0
		for i := range rounds {
			dir := fastDir(t)
			if err := os.CopyFS(dir, os.DirFS(master)); err != nil {
				t.Fatal(err)
			}
			for _, f := range l.Files { // as they were left
				st, err := os.Stat(filepath.Join(master, f.Path))
				if err == nil {
					err = os.Chtimes(filepath.Join(dir, f.Path), st.ModTime(), st.ModTime())
				}
				if err != nil && kind != KindBolt {
					t.Fatal(err)
				}
			}
			name := filepath.Join(dir, files[random.IntN(len(files))])
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 {
				b = b[:random.IntN(len(b))]
			} else {
				// Most in the first pages' heads and elements, where they hurt.
				at := random.IntN(len(b))
				if i%3 == 1 {
					at = at / diskPage * diskPage
					at += random.IntN(120)
				}
				b[at] ^= 1 << random.IntN(8)
			}
			if err := os.WriteFile(name, b, 0o644); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				s, tor := openStore(t, kind, dir, info)
				for p := range l.Pieces() {
					impl := tor.Piece(info.Piece(p))
					if !impl.Completion().Ok {
						hashAndMark(t, impl, info, p)
					}
					if !impl.Completion().Complete {
						if err := writePiece(tor, info, data, p); err != nil {
							t.Fatal(err)
						}
					}
				}
				closeStore(t, s, tor)
			}
			found, err := filepath.Glob(filepath.Join(dir, recordDir, "*.damaged"))
			if err != nil {
				t.Fatal(err)
			}
			aside += len(found)
			if r, err := (Stored{kind, dir, metainfo.Hash{9}, l}).Check(t.Context(), nil); err != nil || !r.Complete() {
				t.Fatalf("damage %d: %+v, %v", i, r.GoodPieces(), err)
			}
		}
		if aside < rounds/10 {
			t.Errorf("%d of %d damaged databases were set aside: the damage does not hurt", aside, rounds)
		}
		t.Logf("%d of %d set aside", aside, rounds)
	})
}

// full is a system whose disk takes only so many bytes.
type full struct {
	realSystem
	mu   sync.Mutex
	room int
}

func (f *full) take(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.room -= n; f.room < 0 {
		return syscall.ENOSPC
	}
	return nil
}

func (f *full) Write(file *os.File, b []byte, off int64) (int, error) {
	if err := f.take(len(b)); err != nil {
		return 0, err
	}
	return f.realSystem.Write(file, b, off)
}

func (f *full) update(db *boltdb.DB, do func(tx *bbolt.Tx) error) error {
	if err := f.take(diskPage); err != nil {
		return err
	}
	return f.realSystem.update(db, do)
}

// A disk that is full fails the writes, says so, and nothing that fails is ever in the record.
func TestDiskFull(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		info, l, data := shape(t, 32<<10, 100_000, 200_000, 50)
		dir := fastDir(t)
		sys := &full{room: 150_000}
		if kind == KindBolt {
			sys.room = 6 * diskPage
		}
		s, tor := openStore(t, kind, dir, info, Options{system: sys})
		failed := 0
		once := func() (failed int) {
			for p := range l.Pieces() {
				if tor.Piece(info.Piece(p)).Completion().Complete {
					continue
				}
				err := writePiece(tor, info, data, p)
				err = errors.Join(err, tor.Piece(info.Piece(p)).(piece).torrent.sync())
				if err != nil {
					failed++
					if !IsFull(err) {
						t.Errorf("piece %d: %v", p, err)
					}
				}
			}
			return failed
		}
		if failed = once(); failed == 0 || failed == l.Pieces() {
			t.Fatalf("%d of %d failed", failed, l.Pieces())
		}
		if err := HasRoom(s); kind != KindBolt && !IsFull(err) {
			t.Errorf("room on a full disk: %v", err)
		}
		sys.room = 1 << 30
		if err := HasRoom(s); err != nil {
			t.Error(err)
		}
		for range 3 { // what failed behind its back is told later
			once()
		}
		closeStore(t, s, tor)
		if r, err := (Stored{kind, dir, metainfo.Hash{9}, l}).Check(t.Context(), nil); err != nil || !r.Complete() {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Data that goes away while it is served is an error, never the end of the process, and is fetched
// again by a download.
func TestDataGoesAway(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(t *testing.T, name string)
	}{
		{"cut short", func(t *testing.T, name string) {
			if err := os.Truncate(name, 10_000); err != nil {
				t.Fatal(err)
			}
		}},
		{"emptied", func(t *testing.T, name string) {
			if err := os.Truncate(name, 0); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, kind Kind) {
				info, l, data := shape(t, 64<<10, 700_000)
				dir := fastDir(t)
				s, tor := openStore(t, kind, dir, info)
				for p := range l.Pieces() {
					if err := writePiece(tor, info, data, p); err != nil {
						t.Fatal(err)
					}
				}
				if err := tor.Piece(info.Piece(0)).(piece).torrent.sync(); err != nil {
					t.Fatal(err)
				}
				c.harm(t, filepath.Join(dir, filepath.FromSlash(countedFiles(kind, metainfo.Hash{9}, l).Files[0].Path)))
				last := tor.Piece(info.Piece(l.Pieces() - 1))
				_, err := last.ReadAt(make([]byte, 100), 0)
				if err == nil {
					t.Error("data that is gone can be read")
				}
				if kind == KindBolt {
					if !errors.Is(err, boltdb.ErrDamaged) {
						t.Errorf("error %v", err)
					}
				} else if !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("error %v", err)
				}
				if last.Completion().Complete {
					t.Error("a piece that is gone is still complete")
				}
				err = errors.Join(tor.Close(), s.Close())
				if kind != KindBolt && err != nil {
					t.Error(err)
				}
				s, tor = openStore(t, kind, dir, info) // no crash loop
				closeStore(t, s, tor)
			})
		})
	}
}

// A directory that may only be read can be served from, and not be downloaded into.
func TestReadOnlyDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root may write everywhere: the refusal is not tried")
	}
	info, l, data := shape(t, 32<<10, 100_000)
	dir := fastDir(t)
	s, tor := openStore(t, KindFile, dir, info)
	for p := range l.Pieces() {
		if err := writePiece(tor, info, data, p); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s, tor)
	if err := os.RemoveAll(filepath.Join(dir, recordDir)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(filepath.Join(dir, l.Files[0].Path), 0o444), os.Chmod(dir, 0o555)); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o755)
	if _, err := Open(KindFile, dir, slog.New(slog.DiscardHandler), Options{}); os.Geteuid() != 0 && (err == nil || !strings.Contains(err.Error(), "may write")) {
		t.Errorf("a download into it: %v", err)
	}
	for _, kind := range []Kind{KindFile, KindMmap} {
		v, err := OpenVerifiedIn(kind, dir, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		tor, err := v.OpenTorrent(t.Context(), info, metainfo.Hash{9})
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 1000)
		if _, err := tor.Piece(info.Piece(1)).ReadAt(got, 5); err != nil || !bytes.Equal(got, data[32<<10+5:][:1000]) {
			t.Errorf("%s: %v", kind, err)
		}
		if err := tor.Close(); err != nil {
			t.Error(err)
		}
	}
}

// order is a system that keeps the names of synced files, and at each record the files that were
// synced before it.
type order struct {
	realSystem
	mu             sync.Mutex
	synced, before []string
}

func (o *order) Sync(f *os.File) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.synced = append(o.synced, filepath.Base(f.Name()))
	return o.realSystem.Sync(f)
}

func (o *order) Rename(root *os.Root, from, to string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.before = slices.Clone(o.synced)
	return o.realSystem.Rename(root, from, to)
}

// A killed process, or another program, leaves files that are not on disk yet. Their pieces are
// found right, and recorded after the files are synced.
func TestFoundFilesAreSynced(t *testing.T) {
	for _, kind := range []Kind{KindFile, KindMmap} {
		for _, suffix := range []string{"", partSuffix} {
			info, l, data := shape(t, 16<<10, 32<<10, 16<<10, 16<<10)
			dir := fastDir(t)
			for _, i := range []int{0, 2} {
				f := l.Files[i]
				name := filepath.Join(dir, filepath.FromSlash(f.Path)+suffix)
				err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
					os.WriteFile(name, data[f.Offset:f.Offset+f.Length], 0o644))
				if err != nil {
					t.Fatal(err)
				}
			}
			sys := &order{}
			s, tor := openStore(t, kind, dir, info, Options{system: sys})
			for p, want := range []bool{true, true, false, true} {
				if got := hashAndMark(t, tor.Piece(info.Piece(p)), info, p); got != want {
					t.Fatalf("piece %d: right %v, want %v", p, got, want)
				}
			}
			closeStore(t, s, tor)
			if r := (Stored{kind, dir, metainfo.Hash{9}, l}).Recorded(); !slices.Equal(r, []bool{true, true, false, true}) {
				t.Errorf("recorded are %v", r)
			}
			for _, i := range []int{0, 2} {
				if name := path.Base(l.Files[i].Path); !slices.Contains(sys.before, name) {
					t.Errorf("%s%s was not synced before it was recorded, only %v", name, suffix, sys.before)
				}
			}
		}
	}
}

// Starting a torrent whose data has not changed writes no record, since a service may start
// thousands of torrents.
func TestUnchangedTorrentIsNotRecordedAgain(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		info, _, data := shape(t, 16<<10, 32<<10, 16<<10)
		dir := fastDir(t)
		s, tor := openStore(t, kind, dir, info, Options{})
		for p := range 3 {
			if err := writePiece(tor, info, data, p); err != nil {
				t.Fatal(err)
			}
			if !hashAndMark(t, tor.Piece(info.Piece(p)), info, p) {
				t.Fatalf("piece %d is wrong", p)
			}
		}
		closeStore(t, s, tor)
		sys := &order{}
		s, tor = openStore(t, kind, dir, info, Options{system: sys})
		closeStore(t, s, tor)
		if len(sys.synced) > 0 {
			t.Errorf("a start without changes synced %q", sys.synced)
		}
	})
}

// during is a system that does something during the first sync of a file whose name it knows.
type during struct {
	realSystem
	name string
	do   func()
}

func (d *during) Sync(f *os.File) error {
	if do := d.do; do != nil && filepath.Base(f.Name()) == d.name {
		d.do = nil
		err := d.realSystem.Sync(f)
		do()
		return err
	}
	return d.realSystem.Sync(f)
}

// During a long sync a piece is found wrong, and fetched again. The new data is not on disk when
// the sync ends, so only the next one records the piece.
func TestPieceChangesDuringSync(t *testing.T) {
	info, l, data := shape(t, 16<<10, 48<<10)
	sys := &during{name: "f0" + partSuffix}
	s, tor := openStore(t, KindFile, fastDir(t), info, Options{system: sys})
	x := tor.Piece(info.Piece(0)).(piece).torrent
	for p := range 2 {
		if err := writePiece(tor, info, data, p); err != nil {
			t.Fatal(err)
		}
	}
	sys.do = func() {
		if err := errors.Join(tor.Piece(info.Piece(1)).MarkNotComplete(), writePiece(tor, info, data, 1)); err != nil {
			t.Error(err)
		}
	}
	for i, want := range [][]bool{{true, false, false}, {true, true, false}} {
		if err := x.sync(); err != nil {
			t.Fatal(err)
		}
		if got := x.record.saved.Pieces.bools(l.Pieces()); !slices.Equal(got, want) {
			t.Errorf("sync %d: recorded are %v, want %v", i, got, want)
		}
	}
	closeStore(t, s, tor)
}

// A file is checked while a sync is under way, and the process is killed after it. The next one does
// not take the piece that was found right meanwhile for missing.
func TestCheckEndsDuringSync(t *testing.T) {
	info, l, data := shape(t, 16<<10, 32<<10)
	dir, sys := fastDir(t), &during{name: "f0"}
	f := l.Files[0]
	name := filepath.Join(dir, filepath.FromSlash(f.Path))
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, data[:f.Length], 0o644)); err != nil {
		t.Fatal(err)
	}
	s, tor := openStore(t, KindFile, dir, info, Options{system: sys})
	x := tor.Piece(info.Piece(0)).(piece).torrent
	check := func(p int) {
		if !hashAndMark(t, tor.Piece(info.Piece(p)), info, p) {
			t.Errorf("piece %d is wrong", p)
		}
	}
	check(0)
	sys.do = func() { check(1) }
	for i, want := range []bool{false, true} {
		if err := x.sync(); err != nil {
			t.Fatal(err)
		}
		checked, right := pieceNotes(t, KindFile, dir, l)
		if !slices.Equal(checked, []bool{want, want}) || !slices.Equal(right, checked) {
			t.Errorf("after sync %d, checked are %v, and right %v", i, checked, right)
		}
	}
	closeStore(t, s, tor)
}

// broken is a system whose next sync of a data file fails with an error, and loses the data.
type broken struct {
	realSystem
	with  error
	fails atomic.Bool
}

func (b *broken) Sync(f *os.File) error {
	if strings.HasSuffix(f.Name(), partSuffix) && !strings.Contains(f.Name(), recordDir) && b.fails.Swap(false) {
		st, err := f.Stat()
		if err == nil {
			_, err = f.WriteAt(make([]byte, st.Size()), 0)
		}
		return errors.Join(b.with, err, os.Chtimes(f.Name(), time.Time{}, st.ModTime()))
	}
	return b.realSystem.Sync(f)
}

// After a sync has failed, the system takes the data for written: the next sync succeeds, without
// the data. So the download must not end as complete, and the next start must look at the data.
func TestFailedSyncIsTold(t *testing.T) {
	info, l, data := shape(t, 16<<10, 32<<10)
	dir, sys := fastDir(t), &broken{with: syscall.EIO}
	s, tor := openStore(t, KindFile, dir, info, Options{system: sys})
	if err := writePiece(tor, info, data, 0); err != nil {
		t.Fatal(err)
	}
	sys.fails.Store(true)
	if err := tor.Piece(info.Piece(0)).(piece).torrent.sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if err := writePiece(tor, info, data, 1); err != nil {
		t.Fatal(err)
	}
	if lost, err := SyncAndCheck(s, metainfo.Hash{9}); !errors.Is(err, syscall.EIO) {
		t.Errorf("lost are %v, %v", lost, err)
	}
	closeStore(t, s, tor)
	if r := (Stored{KindFile, dir, metainfo.Hash{9}, l}).Recorded(); slices.Contains(r, true) {
		t.Errorf("recorded are %v", r)
	}
}

// A full disk on a server is told at a sync only, and the data is lost. The download goes on, and
// fetches that data again.
func TestSyncFindsNoRoom(t *testing.T) {
	info, l, data := shape(t, 16<<10, 32<<10)
	for _, ends := range []bool{false, true} {
		dir, sys := fastDir(t), &broken{with: syscall.EDQUOT}
		s, tor := openStore(t, KindFile, dir, info, Options{system: sys})
		if err := writePiece(tor, info, data, 0); err != nil {
			t.Fatal(err)
		}
		sys.fails.Store(true)
		x := tor.Piece(info.Piece(0)).(piece).torrent
		if err := x.sync(); !IsFull(err) {
			t.Fatal(err)
		}
		if err := x.sync(); err != nil {
			t.Fatal(err)
		}
		if ends {
			closeStore(t, s, tor)
			if r := (Stored{KindFile, dir, metainfo.Hash{9}, l}).Recorded(); slices.Contains(r, true) {
				t.Errorf("recorded are %v", r)
			}
			continue
		}
		if lost, err := SyncAndCheck(s, metainfo.Hash{9}); err != nil || !slices.Equal(lost, []int{0}) {
			t.Errorf("lost are %v, %v", lost, err)
		}
		for p := range l.Pieces() {
			if err := writePiece(tor, info, data, p); err != nil {
				t.Fatal(err)
			}
		}
		if lost, err := SyncAndCheck(s, metainfo.Hash{9}); err != nil || len(lost) > 0 {
			t.Errorf("lost again are %v, %v", lost, err)
		}
		closeStore(t, s, tor)
	}
}

// thinDisk mounts a file system that promises more room than its disk has.
func thinDisk(t *testing.T, at string) {
	t.Helper()
	disk := t.TempDir()
	image := filepath.Join(disk, "image")
	for i, c := range [][]string{
		{"mount", "-t", "tmpfs", "-o", "size=6m", "braid-test", disk},
		{"truncate", "-s", "64M", image},
		{"mkfs.ext4", "-q", "-O", "^has_journal", "-E", "nodiscard", image},
		{"mount", "-o", "loop", image, at},
	} {
		if out, err := exec.CommandContext(t.Context(), c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Skipf("such a disk cannot be made here: %v: %v: %s", c, err, out)
		}
		if i%3 == 0 {
			t.Cleanup(func() {
				umount := exec.Command("umount", c[len(c)-1]) //nolint:noctx // the test's context has ended
				if err := umount.Run(); err != nil {
					t.Error("umount:", err)
				}
			})
		}
	}
}

// The disk has lost data, and some other program was told. The record does not trust the data, and
// a check does not take what is in memory for what is on disk.
func TestLossIsToldToAnother(t *testing.T) {
	info, l, data := shape(t, 256<<10, repeat(512<<10, 24)...)
	dir := t.TempDir()
	set := filepath.Join(dir, "set")
	if err := os.Mkdir(set, 0o755); err != nil {
		t.Fatal(err)
	}
	thinDisk(t, set)
	s, tor := openStore(t, KindFile, dir, info)
	for p := range l.Pieces() {
		if err := writePiece(tor, info, data, p); err != nil {
			// The system may write the data by itself before another program makes it do so.
			t.Log("the store, while it writes:", err)
			break
		}
	}
	t.Log("another program:", exec.CommandContext(t.Context(), "sync", "-f", set).Run())
	t.Log("the store:", errors.Join(tor.Close(), s.Close()))
	stored := Stored{KindFile, dir, metainfo.Hash{9}, l}
	r, err := stored.Check(t.Context(), nil)
	if err != nil || r.GoodPieces() == l.Pieces() {
		t.Errorf("all pieces are found right, %v", err)
	}
	for p, recorded := range stored.Recorded() {
		if recorded && !r.Good[p] {
			t.Errorf("piece %d is recorded, and not on disk", p)
		}
	}
}

// A process that is killed while it looks for room leaves no file that takes the room.
func TestHasRoomLeavesNothing(t *testing.T) {
	dir := fastDir(t)
	sys := &afterWrite{}
	s, err := Open(KindFile, dir, slog.New(slog.DiscardHandler), Options{system: sys})
	if err != nil {
		t.Fatal(err)
	}
	look := func() {
		if left, err := filepath.Glob(filepath.Join(dir, recordDir, "room-*")); err != nil || len(left) > 0 {
			t.Errorf("there is %v, %v", left, err)
		}
	}
	sys.do.Store(&look)
	if err := errors.Join(HasRoom(s), s.Close()); err != nil {
		t.Error(err)
	}
}

// pieceNotes are what the record says of the pieces to a process that starts now.
func pieceNotes(t *testing.T, kind Kind, dir string, l Layout) (checked, right []bool) {
	t.Helper()
	saved, ok := (Stored{kind, dir, metainfo.Hash{9}, l}).readRecord()
	now, err := stamps(dir, l)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	checked, right, _ = saved.compare(l, now)
	return checked, right
}

// A piece is found right during a sync. If the process is killed after it, the next one checks the
// piece again, since the record does not have it yet.
func TestPieceFetchedDuringSync(t *testing.T) {
	for _, kind := range []Kind{KindFile, KindMmap} {
		info, l, data := shape(t, 16<<10, 32<<10)
		dir, sys := fastDir(t), &during{name: "f0" + partSuffix}
		s, tor := openStore(t, kind, dir, info, Options{system: sys})
		x := tor.Piece(info.Piece(0)).(piece).torrent
		if err := writePiece(tor, info, data, 0); err != nil {
			t.Fatal(err)
		}
		sys.do = func() {
			if err := writePiece(tor, info, data, 1); err != nil {
				t.Error(err)
			}
		}
		for i, want := range []bool{false, true} {
			if err := x.sync(); err != nil {
				t.Fatal(err)
			}
			if checked, right := pieceNotes(t, kind, dir, l); checked[1] != want || right[1] != want {
				t.Errorf("after sync %d, checked are %v, and right %v", i, checked, right)
			}
		}
		closeStore(t, s, tor)
	}
}

// locker does something before it is locked for the first time.
type locker struct {
	sync.Locker
	do func()
}

func (l *locker) Lock() {
	if do := l.do; do != nil {
		l.do = nil
		do()
	}
	l.Locker.Lock()
}

// A piece is found right just when a sync begins. The record then has the piece or its blocks.
func TestPieceIsRightWhenSyncBegins(t *testing.T) {
	info, _, data := shape(t, 16<<10, 32<<10)
	s, tor := openStore(t, KindFile, fastDir(t), info)
	p := tor.Piece(info.Piece(0))
	x := p.(piece).torrent
	if _, err := p.WriteAt(data[:16<<10], 0); err != nil {
		t.Fatal(err)
	}
	if err := x.writer.flushPiece(0); err != nil {
		t.Fatal(err)
	}
	x.writer.blocks.changed = sync.NewCond(&locker{&x.writer.mu, func() {
		if err := p.MarkComplete(); err != nil {
			t.Error(err)
		}
	}})
	if err := x.sync(); err != nil {
		t.Fatal(err)
	}
	if saved := x.record.saved; !saved.Pieces.has(0) && saved.Blocks[0] == nil {
		t.Error("the record has neither the piece nor its blocks")
	}
	closeStore(t, s, tor)
}

// Recorded data may be gone for a while. Later it is looked at again, and does not count as missing
// for ever.
func TestDataComesBack(t *testing.T) {
	touch := func(name string, by time.Duration) {
		st, err := os.Stat(name)
		if err == nil {
			err = os.Chtimes(name, time.Time{}, st.ModTime().Add(by))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rename := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name                string
		before, while, then func(name string, x *torrent)
	}{
		{
			"a start that checks nothing",
			func(name string, _ *torrent) { touch(name, time.Hour) },
			func(string, *torrent) {},
			func(name string, _ *torrent) { touch(name, -time.Hour) },
		}, {
			"a read",
			func(string, *torrent) {},
			func(name string, x *torrent) {
				rename(name, name+".away")
				if _, err := (piece{torrent: x}).ReadAt(make([]byte, 10), 0); err == nil {
					t.Error("a file that is away can be read")
				}
			},
			func(name string, _ *torrent) { rename(name+".away", name) },
		}, {
			"a look at the files",
			func(string, *torrent) {},
			func(name string, x *torrent) {
				rename(name, name+".away")
				if lost, err := x.syncAndCheck(); len(lost) != 2 || err != nil {
					t.Error(lost, err)
				}
			},
			func(name string, _ *torrent) { rename(name+".away", name) },
		},
	} {
		info, l, data := shape(t, 16<<10, 32<<10)
		dir := fastDir(t)
		fillStore(t, KindFile, dir, info, data)
		name := filepath.Join(dir, filepath.FromSlash(l.Files[0].Path))
		c.before(name, nil)
		s, tor := openStore(t, KindFile, dir, info)
		c.while(name, tor.Piece(info.Piece(0)).(piece).torrent)
		closeStore(t, s, tor)
		c.then(name, nil)
		s, tor = openStore(t, KindFile, dir, info)
		for p := range l.Pieces() {
			if x := tor.Piece(info.Piece(p)).Completion(); x.Ok && !x.Complete {
				t.Errorf("after %s, piece %d counts as missing", c.name, p)
			}
		}
		closeStore(t, s, tor)
	}
}
