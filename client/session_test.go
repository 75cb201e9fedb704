package client

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"braid/storage"
	"braid/units/await"
)

func testLog(t *testing.T) *slog.Logger {
	level := slog.LevelInfo
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: level}))
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	fmt.Fprint(w.t.Output(), string(b))
	return len(b), nil
}

// randomFiles writes files of these sizes below dir/name, always the same bytes for the same seed.
func randomFiles(t *testing.T, dir, name string, sizes ...int) {
	t.Helper()
	r := rand.NewChaCha8([32]byte{1})
	for i, n := range sizes {
		b := make([]byte, n)
		r.Read(b)
		path := filepath.Join(dir, name, fmt.Sprintf("d%d", i%3), fmt.Sprintf("f%d", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func writeRandom(t *testing.T, path string, size int) {
	t.Helper()
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{2}).Read(b)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func makeTorrent(t *testing.T, path string, opts CreateOptions) Created {
	t.Helper()
	c, err := Create(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func openSession(t *testing.T, cfg Config) *Session {
	t.Helper()
	cfg.Logger = testLog(t)
	s, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func mustPeer(t *testing.T, s string) Peer {
	t.Helper()
	p, err := ParseListen(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// seed serves the data below dir from a session of its own.
func seed(t *testing.T, src Source, dir string) *Session {
	t.Helper()
	s := openSession(t, Config{Listen: []Peer{mustPeer(t, "127.0.0.1:0")}})
	if _, err := s.Add(src, storage.OpenVerified(dir, testLog(t)), Options{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func openStore(t *testing.T, dir string) storage.Store {
	t.Helper()
	st, err := storage.Open("file", dir, testLog(t), storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// tellProgress logs where a transfer of a failed test is.
func tellProgress(t *testing.T, tr *Transfer) {
	if t.Failed() {
		t.Logf("%+v", tr.Progress())
	}
}

// until waits until the progress is as wanted.
func until(t *testing.T, tr *Transfer, what string, wanted func(Progress) bool) {
	t.Helper()
	defer tellProgress(t, tr)
	await.True(t, "a transfer that is "+what, func() bool { return wanted(tr.Progress()) })
}

func wait(t *testing.T, tr *Transfer) Progress {
	t.Helper()
	defer tellProgress(t, tr)
	await.Value(t, "the end of the download", tr.Done())
	p := tr.Progress()
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	return p
}

// sameFiles compares every file of the torrent below two directories.
func sameFiles(t *testing.T, src Source, want, got string) {
	t.Helper()
	for _, f := range src.Layout.Files {
		a, err := os.ReadFile(filepath.Join(want, f.Path))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(got, f.Path))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(a, b) {
			t.Errorf("%s differs", f.Path)
		}
	}
}

func TestDownloadOverTCP(t *testing.T) {
	data, out := t.TempDir(), t.TempDir()
	randomFiles(t, data, "set", 3<<20, 0, 1, 70_000, 16384, 5<<20, 123_457)
	c := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{PieceLength: 32 << 10})
	seeder := seed(t, c.Source, data)

	store := openStore(t, out)
	s := openSession(t, Config{})
	tr, err := s.Add(c.Source, store, Options{Peers: seeder.Listening()})
	if err != nil {
		t.Fatal(err)
	}
	p := wait(t, tr)
	if p.Fetched != c.Source.Layout.Length || p.Dropped != 0 {
		t.Errorf("fetched %d of %d, %d dropped", p.Fetched, c.Source.Layout.Length, p.Dropped)
	}
	if len(p.Paths) != 1 || p.Paths[0].BytesRead < uint64(c.Source.Layout.Length) || p.Paths[0].RTT == 0 {
		t.Errorf("paths: %+v", p.Paths)
	}
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, c.Source, data, out)
	r, err := inFiles(c.Source, out).Check(t.Context(), nil)
	if err != nil || !r.Complete() {
		t.Errorf("check: %+v, %v", r, err)
	}
	if !inFiles(c.Source, out).Trusted() {
		t.Error("the record does not vouch for what was just downloaded")
	}
}

// inFiles is the data of a torrent in files below a directory.
func inFiles(s Source, dir string) storage.Stored {
	return storage.Stored{Kind: storage.KindFile, Dir: dir, Hash: s.InfoHash, Layout: s.Layout}
}

func TestMagnet(t *testing.T) {
	data, out := t.TempDir(), t.TempDir()
	randomFiles(t, data, "set", 3<<20, 100_000)
	c := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{PieceLength: 16 << 10})
	seeder := seed(t, c.Source, data)
	src, err := ParseMagnet(c.Source.Magnet(seeder.Listening()...))
	if err != nil {
		t.Fatal(err)
	}
	if !src.IsMagnet() || len(src.Peers) != 1 {
		t.Fatalf("magnet: %+v", src)
	}
	store := openStore(t, out)
	tr, err := openSession(t, Config{}).Add(src, store, Options{Peers: src.Peers})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, tr)
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, c.Source, data, out)
}

func TestManyPieces(t *testing.T) { downloadHole(t, 24<<20) }

func TestLargeNumberOfPieces(t *testing.T) { downloadHole(t, 192<<20) }

// downloadHole downloads many pieces, of a file that is mostly a hole.
func downloadHole(t *testing.T, length int64) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	name := filepath.Join(data, "big")
	writeRandom(t, name, 1<<20)
	if err := os.Truncate(name, length); err != nil {
		t.Fatal(err)
	}
	src := makeTorrent(t, name, CreateOptions{PieceLength: 16 << 10}).Source
	store := openStore(t, out)
	tr, err := openSession(t, Config{}).Add(src, store, Options{Peers: seed(t, src, data).Listening()})
	if err != nil {
		t.Fatal(err)
	}
	if p := wait(t, tr); int64(p.Pieces) != length>>14 || p.Done != p.Pieces {
		t.Errorf("%d of %d pieces", p.Done, p.Pieces)
	}
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := inFiles(src, out).Check(t.Context(), nil)
	if err != nil || !r.Complete() {
		t.Errorf("%d good pieces, %v", r.GoodPieces(), err)
	}
}

// A torrent that the target directory cannot take fails, also when its description comes from a
// peer.
func TestStoreRefuses(t *testing.T) {
	data := t.TempDir()
	randomFiles(t, data, "set", 100_000)
	src := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{}).Source
	seeder := seed(t, src, data)
	magnet, err := ParseMagnet(src.Magnet(seeder.Listening()...))
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := os.Symlink(t.TempDir(), filepath.Join(out, "set")); err != nil {
		t.Fatal(err)
	}
	store := openStore(t, out)
	defer store.Close()
	s := openSession(t, Config{})
	if _, err := s.Add(src, store, Options{Peers: seeder.Listening()}); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("torrent: %v", err)
	}
	tr, err := s.Add(magnet, store, Options{Peers: magnet.Peers})
	if err != nil {
		t.Fatal(err)
	}
	until(t, tr, "failed", func(p Progress) bool { return p.Phase == Broken })
	if err := tr.Progress().Err; !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("magnet: %v", err)
	}
}

// Session.Close waits for every transfer, also for one that another goroutine is closing. Otherwise
// the caller could close the store while the transfer's workers still use it.
func TestCloseWaitsForTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net pipes
		s := sessionOver(t, Config{}, net.host())
		store := openStore(t, t.TempDir())
		t.Cleanup(func() { store.Close() })
		x, err := s.Add(smallTorrent(t), store, Options{})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		x.workers.Go(func() { <-release })
		go x.Close()
		<-x.ctx.Done()
		synctest.Wait() // for a Close that forgets the transfer too early
		var closed atomic.Bool
		go func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			closed.Store(true)
		}()
		time.Sleep(time.Minute)
		if closed.Load() {
			t.Error("closed while a worker of a transfer was at work")
		}
		close(release)
		if synctest.Wait(); !closed.Load() {
			t.Error("not closed after the worker's end")
		}
	})
}
