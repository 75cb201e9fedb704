package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/anacrolix/torrent/metainfo"

	"braid/storage"
)

// readAll opens file i of a transfer and reads all of it.
func readAll(t *testing.T, tr *Transfer, i int) ([]byte, error) {
	t.Helper()
	r, err := tr.OpenFile(t.Context(), i)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// Files are read while they are downloaded, from any place, and as soon as their pieces are there.
func TestReadWhileDownloading(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	randomFiles(t, from, "data", 300_000, 0, 1, 65536, 200_000)
	c := makeTorrent(t, filepath.Join(from, "data"), CreateOptions{PieceLength: 32 << 10})
	s := openSession(t, Config{})
	tr, err := s.Add(c.Source, openStore(t, to), Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := tr.OpenFile(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	seeder := seed(t, c.Source, from)
	tr.AddPeers(seeder.Listening()...)
	for i, f := range c.Source.Layout.Files {
		want, err := os.ReadFile(filepath.Join(from, f.Path))
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(t, tr, i)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes of %d, or others: %v", f.Path, len(got), len(want), err)
		}
		if i != 0 {
			continue
		}
		if err := iotest.TestReader(r, want); err != nil {
			t.Error(err)
		}
		for range 50 {
			at := rand.IntN(len(want))
			b := make([]byte, min(50_000, len(want)-at))
			if _, err := r.Seek(int64(at), io.SeekStart); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(r, b); err != nil || !bytes.Equal(b, want[at:at+len(b)]) {
				t.Fatalf("at %d: %v", at, err)
			}
		}
	}
	if _, err := tr.OpenFile(t.Context(), len(c.Source.Layout.Files)); err == nil {
		t.Error("a file that is not there is opened")
	}
}

// A read that waits for data ends with the transfer, and no read comes after it.
func TestReadEndsWithTransfer(t *testing.T) {
	from := t.TempDir()
	writeRandom(t, filepath.Join(from, "f"), 100_000)
	c := makeTorrent(t, filepath.Join(from, "f"), CreateOptions{PieceLength: 32 << 10})
	s := openSession(t, Config{})
	tr, err := s.Add(c.Source, openStore(t, t.TempDir()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := tr.OpenFile(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error)
	go func() {
		_, err := r.Read(make([]byte, 10))
		result <- err
	}()
	tr.Close()
	if err := <-result; err == nil {
		t.Error("a read has returned data that is not there")
	}
	if _, err := r.Read(make([]byte, 10)); err == nil {
		t.Error("a read after the end has no error")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := tr.OpenFile(t.Context(), 0); err == nil {
		t.Error("a file of a transfer that has ended is opened")
	}
}

// A reader has nothing requested that the selection leaves out, although the file beside it begins
// exactly where the wanted one ends. Such a file is not opened either.
func TestReadBesideUnwanted(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	randomFiles(t, from, "data", 3*32<<10, 2*32<<10)
	c := makeTorrent(t, filepath.Join(from, "data"), CreateOptions{PieceLength: 32 << 10})
	wanted := Selection{Select: []string{"d0/f0"}}
	store, err := storage.Open(storage.KindFile, to, testLog(t),
		storage.Options{Wanted: func(_ metainfo.Hash, l storage.Layout) []bool { return wanted.Wants(l) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	s := openSession(t, Config{})
	tr, err := s.Add(c.Source, store, Options{Selection: wanted, Peers: seed(t, c.Source, from).Listening()})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(t, tr, 0); len(got) != 3*32<<10 || err != nil {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if _, err := tr.OpenFile(t.Context(), 1); !errors.Is(err, ErrUnwanted) {
		t.Errorf("a file that is not wanted is opened: %v", err)
	}
	if p := wait(t, tr); p.Err != nil || p.Fetched != 3*32<<10 {
		t.Errorf("%d bytes were fetched: %v", p.Fetched, p.Err)
	}
}

// Reading a complete torrent needs no reader of the engine. If a piece is lost, the read waits for
// it.
func TestReadComplete(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	randomFiles(t, from, "data", 100_000, 50_000)
	c := makeTorrent(t, filepath.Join(from, "data"), CreateOptions{PieceLength: 32 << 10})
	s := openSession(t, Config{})
	tr, err := s.Add(c.Source, openStore(t, to), Options{Peers: seed(t, c.Source, from).Listening()})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, tr)
	name := c.Source.Layout.Files[0].Path
	want, err := os.ReadFile(filepath.Join(from, name))
	if err != nil {
		t.Fatal(err)
	}
	for _, lost := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := tr.OpenFile(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		if lost {
			cancel() // nobody sends it
			if want, err = nil, os.Truncate(filepath.Join(to, name), 0); err != nil {
				t.Fatal(err)
			}
		}
		got, err := io.ReadAll(r)
		if errors.Is(err, context.Canceled) != lost || !bytes.Equal(got, want) || (r.engine != nil) != lost {
			t.Errorf("lost %v: %d bytes, %v, a reader of the engine: %v", lost, len(got), err, r.engine != nil)
		}
		cancel()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
