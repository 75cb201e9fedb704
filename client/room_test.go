package client

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/anacrolix/torrent"

	"braid/storage"
)

// A disk that is really full pauses the download, which says so, serves what it has, and goes on by
// itself.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, kind := range []storage.Kind{storage.KindFile, storage.KindMmap, storage.KindBolt} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			if err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=128m", "braid-test", out).Run(); err != nil {
				t.Skip("a small file system cannot be mounted here:", err)
			}
			t.Cleanup(func() {
				if err := exec.Command("umount", out).Run(); err != nil { //nolint:noctx // the test's context has ended
					t.Error("umount:", err)
				}
			})
			ballast := filepath.Join(out, "ballast")
			if err := os.WriteFile(ballast, make([]byte, 108<<20), 0o644); err != nil {
				t.Fatal(err)
			}
			data := t.TempDir()
			writeRandom(t, filepath.Join(data, "file"), 48<<20)
			src := makeTorrent(t, filepath.Join(data, "file"), CreateOptions{PieceLength: 256 << 10}).Source
			seeder := seed(t, src, data)
			store, err := storage.Open(kind, out, testLog(t), storage.Options{})
			if err != nil {
				t.Fatal(err)
			}
			tr, err := openSession(t, Config{}).Add(src, store, Options{Peers: seeder.Listening()})
			if err != nil {
				t.Fatal(err)
			}
			until(t, tr, "paused", func(p Progress) bool { return p.Waiting == fullMessage })
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			wait(t, tr)
			tr.Close()
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			stored := storage.Stored{Kind: kind, Dir: out, Hash: src.InfoHash, Layout: src.Layout}
			if r, err := stored.Check(t.Context(), nil); err != nil || !r.Complete() {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// During a pause the engine takes pieces out of one of its two sets of wanted ones. That must not
// be found out on the way back: it compares them now and then, rarely in a process that has lived
// long, and panics.
func TestAskAgain(t *testing.T) {
	t.Parallel()
	if child := "BRAID_TEST_ASK_AGAIN"; os.Getenv(child) == "" {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAskAgain$")
		c.Env = append(os.Environ(), child+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	data := t.TempDir()
	const pieces = 1500 // so that the engine compares in the middle of 1400, after as many changes as there are pieces
	writeRandom(t, filepath.Join(data, "file"), pieces*minPieceLength)
	src := makeTorrent(t, filepath.Join(data, "file"), CreateOptions{PieceLength: minPieceLength}).Source
	tr, err := openSession(t, Config{}).Add(src, openStore(t, t.TempDir()), Options{Peers: []Peer{mustPeer(t, "127.0.0.1:1")}})
	if err != nil {
		t.Fatal(err)
	}
	until(t, tr, "downloading", func(p Progress) bool { return p.Phase == Downloading })
	tr.inbox.put(func() { tr.loop.room.onFull(errors.New("no room")) })
	until(t, tr, "paused", func(p Progress) bool { return p.Waiting == fullMessage })
	for i := range pieces {
		if i < 1400 {
			tr.torrent.SetPriority(i, torrent.PiecePriorityNormal)
		} else {
			tr.torrent.(anacrolixTorrent).Piece(i).UpdateCompletion()
		}
	}
	tr.inbox.put(func() { tr.loop.room.onRoom(nil) })
	until(t, tr, "going on", func(p Progress) bool { return p.Waiting != fullMessage })
}

// Nesting without end must not take the process's stack.
func TestDeepTorrent(t *testing.T) {
	for _, open := range []string{"l", "d1:a"} {
		b := []byte("d4:info")
		for range 8 << 20 / len(open) {
			b = append(b, open...)
		}
		if _, err := ParseTorrent(b); err == nil {
			t.Error("accepted")
		}
	}
}
