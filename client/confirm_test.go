package client

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"braid/storage"
)

// seedPart is a session that serves so many bytes of a torrent, and all of it once rest was called.
// It answers requests in random order, so that many pieces may lack a block: of 7 MiB in 8, three
// fifths are in pieces of four blocks that are whole.
func seedPart(t *testing.T, src Source, data string, size int64) (seeder *Session, rest func()) {
	t.Helper()
	var gate sync.RWMutex
	var free atomic.Int64
	free.Store(size)
	gate.Lock()
	rest = sync.OnceFunc(gate.Unlock)
	seeder = openSession(t, Config{Listen: []Peer{mustPeer(t, "127.0.0.1:0")}})
	t.Cleanup(rest) // before the session is closed
	if _, err := seeder.Add(src, gated{storage.OpenVerified(data, testLog(t)), &gate, &free}, Options{}); err != nil {
		t.Fatal(err)
	}
	return seeder, rest
}

// What happens to a file in the middle of a download is noticed before the download says that it is
// complete, and what is gone is fetched again.
func TestFilesThatGoAway(t *testing.T) {
	t.Parallel()
	other := filepath.Join(t.TempDir(), "other") // written before the download, which does not wait for it
	if err := os.WriteFile(other, make([]byte, 8<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	replace := func(name string) error { return os.Rename(other, name) }
	for _, c := range []struct {
		name      string
		kind      storage.Kind
		harm      func(name string) error
		selection Selection
	}{
		{"deleted", storage.KindFile, os.Remove, Selection{}},
		{"deleted", storage.KindMmap, os.Remove, Selection{}},
		{"deleted in part of a torrent", storage.KindFile, os.Remove, Selection{Select: []string{"set/b"}}},
		{"replaced", storage.KindFile, replace, Selection{Sequential: true}},
	} {
		t.Run(string(c.kind)+" "+c.name, func(t *testing.T) {
			t.Parallel()
			data, out := t.TempDir(), t.TempDir()
			if err := os.Mkdir(filepath.Join(data, "set"), 0o755); err != nil {
				t.Fatal(err)
			}
			writeRandom(t, filepath.Join(data, "set", "a"), 1<<20)
			writeRandom(t, filepath.Join(data, "set", "b"), 8<<20)
			src := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{PieceLength: 64 << 10}).Source
			seeder, rest := seedPart(t, src, data, 7<<20)
			store, err := storage.Open(c.kind, out, testLog(t), storage.Options{})
			if err != nil {
				t.Fatal(err)
			}
			tr, err := openSession(t, Config{}).Add(src, store, Options{Peers: seeder.Listening(), Selection: c.selection})
			if err != nil {
				t.Fatal(err)
			}
			until(t, tr, "in the middle", func(p Progress) bool { return p.Have > 2<<20 })
			if err := c.harm(filepath.Join(out, "set", "b.part")); err != nil {
				t.Fatal(err)
			}
			rest()
			p := wait(t, tr)
			if p.Have != p.Total || p.Fetched <= p.Total {
				t.Errorf("%d of %d bytes, %d fetched", p.Have, p.Total, p.Fetched)
			}
			tr.Close()
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if len(c.selection.Select) == 0 {
				sameFiles(t, src, data, out)
				return
			}
			want, err := os.ReadFile(filepath.Join(data, "set", "b"))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Join(out, "set", "b")); err != nil || string(got) != string(want) {
				t.Errorf("the file that was wanted is not right: %v", err)
			}
		})
	}
}

// A database cannot be had again while it is open.
func TestDatabaseThatGoesAway(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	writeRandom(t, filepath.Join(data, "file"), 4<<20)
	src := makeTorrent(t, filepath.Join(data, "file"), CreateOptions{PieceLength: 64 << 10}).Source
	seeder, rest := seedPart(t, src, data, 3<<20)
	store, err := storage.Open(storage.KindBolt, out, testLog(t), storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := openSession(t, Config{}).Add(src, store, Options{Peers: seeder.Listening()})
	if err != nil {
		t.Fatal(err)
	}
	until(t, tr, "in the middle", func(p Progress) bool { return p.Have > 1<<18 })
	all, err := filepath.Glob(filepath.Join(out, ".braid", "*.pieces.db"))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if err := os.Remove(all[0]); err != nil {
		t.Fatal(err)
	}
	rest()
	<-tr.Done()
	if err := tr.Progress().Err; err == nil || !strings.Contains(err.Error(), "start again") {
		t.Errorf("a download into a deleted database: %v", err)
	}
	tr.Close()
	_ = store.Close()
}
