package client

import (
	"context"
	"errors"
	"os"
	"os/exec"
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

// verified is an engine that keeps the pieces that it was asked to verify.
type verified struct {
	fakeTorrent
	pieces []int
}

func (v *verified) Verify(_ context.Context, piece int) error {
	v.pieces = append(v.pieces, piece)
	return nil
}

// The disk is full when the loss of a file is to be recorded. The store tells of the loss only
// once, so the engine must hear of it then, or the next attempt finds nothing missing.
func TestFileGoesAwayAndDiskIsFull(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	const pieces = 3
	writeRandom(t, filepath.Join(data, "file"), pieces*minPieceLength)
	src := makeTorrent(t, filepath.Join(data, "file"), CreateOptions{PieceLength: minPieceLength}).Source
	content, err := os.ReadFile(filepath.Join(data, "file"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := storage.Open(storage.KindFile, out, testLog(t), storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tor, err := store.OpenTorrent(t.Context(), src.Info, src.InfoHash)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pieces {
		p := tor.Piece(src.Info.Piece(i))
		b := content[i*minPieceLength:][:minPieceLength]
		_, err1 := p.WriteAt(b, 0)
		_, err2 := p.ReadAt(b, 0)
		if err := errors.Join(err1, err2, p.MarkComplete()); err != nil {
			t.Fatal(err)
		}
	}
	if lost, err := storage.SyncAndCheck(store, src.InfoHash); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	records, err := filepath.Glob(filepath.Join(out, ".braid", "*.record"))
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	// A device that is always full stands where the next record is written. Then it is deleted.
	if err := exec.CommandContext(t.Context(), "mknod", records[0]+".part", "c", "1", "7").Run(); err != nil {
		t.Skip("no device can be made here:", err)
	}
	if err := os.Remove(filepath.Join(out, "file")); err != nil {
		t.Fatal(err)
	}
	confirmed, engine := false, &verified{}
	c := &confirmer{core: &core{
		log: testLog(t), source: src, torrent: engine, store: &oneFile{Store: store},
		inbox: newInbox(), want: newWant(Selection{}, src.Layout), ctx: t.Context(),
		fail: func(err error) { t.Error(err) },
	}, confirmed: func() { confirmed = true }}
	c.blame = newBlame(c.store.onBlock)
	c.want.first = pieces
	c.begin()
	c.workers.Wait()
	for _, handle := range c.inbox.take() {
		handle()
	}
	if len(engine.pieces) != pieces || c.want.first != 0 || c.waiting == "" || confirmed {
		t.Errorf("pieces %v are verified again, %d count as complete, waiting %q, confirmed %v",
			engine.pieces, c.want.first, c.waiting, confirmed)
	}
	if err := errors.Join(tor.Close(), store.Close()); err != nil {
		t.Error(err)
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
