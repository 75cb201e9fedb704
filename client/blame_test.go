package client

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	g "github.com/anacrolix/generics"
	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"

	"braid/pathsel"
	"braid/storage"
)

// liar is a store that claims every piece but one, whatever is on disk.
type liar struct{ lacks int }

func (l liar) Get(k metainfo.PieceKey) (engine.Completion, error) {
	return engine.Completion{Ok: true, Complete: k.Index != l.lacks}, nil
}
func (liar) Set(metainfo.PieceKey, g.Option[bool]) error { return nil }
func (liar) Close() error                                { return nil }

func openLiar(dir string, lacks int) storage.Store {
	return engine.NewFileOpts(engine.NewFileClientOpts{
		ClientBaseDir: dir, PieceCompletion: liar{lacks}, UsePartFiles: g.Some(false), DisableMmap: true,
	})
}

// spoil copies the file and changes bytes of the first pieces.
func spoil(t *testing.T, from, to string, pieceLength, pieces int) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pieces {
		b[i*pieceLength+100] ^= 0xff
	}
	if err := os.WriteFile(to, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// until asks for the progress until it is as wanted.
func until(t *testing.T, tr *Transfer, what string, wanted func(Progress) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !wanted(tr.Progress()) {
		select {
		case <-ctx.Done():
			t.Fatalf("not %s after %v: %+v", what, patience, tr.Progress())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A peer that sends wrong pieces over several path-level connections is banned over all of them, whoever has opened
// them, and the download completes from an honest peer. The engine panics here if it is shown addresses
// without an IP.
func TestWrongPieces(t *testing.T) {
	t.Parallel()
	const pieceLength, pieces = 32 << 10, 64
	for _, c := range []struct {
		name     string
		accepted bool
	}{{"dialled", false}, {"accepted", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			good, bad, out := t.TempDir(), t.TempDir(), t.TempDir()
			writeRandom(t, filepath.Join(good, "file"), pieceLength*pieces)
			spoil(t, filepath.Join(good, "file"), filepath.Join(bad, "file"), pieceLength, pieces-1)
			src := makeTorrent(t, filepath.Join(good, "file"), CreateOptions{PieceLength: pieceLength}).Source

			leecher := openFan(t, Config{}, "127.0.0.1", 3)
			villain := openFan(t, Config{}, "127.0.0.1", 3)
			store := openStore(t, out)
			tr, err := leecher.Add(src, store, Options{})
			if err != nil {
				t.Fatal(err)
			}
			opts := Options{}
			if c.accepted {
				opts.Peers = leecher.Listening()
			}
			if _, err := villain.Add(src, openLiar(bad, pieces-1), opts); err != nil {
				t.Fatal(err)
			}
			if !c.accepted {
				tr.AddPeers(villain.Listening()...)
			}
			host := faceOf(villain.Listening()[0])
			until(t, tr, "banned", func(p Progress) bool {
				if !leecher.offers.isBanned(host) || p.Dropped == 0 {
					return false
				}
				for _, x := range p.Paths {
					if x.State == pathsel.Active || x.State == pathsel.Opening {
						return false
					}
				}
				return true
			})
			if _, err := leecher.offers.takeSlot(host); err == nil {
				t.Error("the banned host may connect again")
			}
			// Another host of loopback, so that the ban does not hold for it.
			honest := openFan(t, Config{}, "127.0.0.2", 1)
			if _, err := honest.Add(src, storage.OpenVerified(good, testLog(t)), Options{}); err != nil {
				t.Fatal(err)
			}
			tr.AddPeers(honest.Listening()...)
			wait(t, tr)
			tr.Close()
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			sameFiles(t, src, good, out)
		})
	}
}

// One of three peers sends wrong blocks of pieces that all three have a part in. It is found and banned, the others are not.
func TestWrongBlocksInSharedPieces(t *testing.T) {
	t.Parallel()
	const pieceLength, pieces = 1 << 20, 12
	good, bad, out := t.TempDir(), t.TempDir(), t.TempDir()
	writeRandom(t, filepath.Join(good, "file"), pieceLength*pieces)
	b, err := os.ReadFile(filepath.Join(good, "file"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(b); i += 16 << 10 {
		b[i] ^= 0xff // in every block
	}
	if err := os.WriteFile(filepath.Join(bad, "file"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	src := makeTorrent(t, filepath.Join(good, "file"), CreateOptions{PieceLength: pieceLength}).Source
	slow := Config{Limits: Limits{Upload: 16e6}} // so that the engine wants all of them
	seed := func(ip string, store storage.Store) *Session {
		s := openFan(t, slow, ip, 2)
		if _, err := s.Add(src, store, Options{}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	villain := seed("127.0.0.1", openLiar(bad, -1))
	honest := []*Session{seed("127.0.0.2", storage.OpenVerified(good, testLog(t))), seed("127.0.0.3", storage.OpenVerified(good, testLog(t)))}
	leecher := openFan(t, Config{}, "127.0.0.1", 2)
	store := openStore(t, out)
	peers := villain.Listening()
	for _, h := range honest {
		peers = append(peers, h.Listening()...)
	}
	tr, err := leecher.Add(src, store, Options{Peers: peers})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, tr)
	if tr.Progress().Dropped == 0 {
		t.Error("no piece was wrong: nothing was tested")
	}
	until(t, tr, "banned", func(Progress) bool { return leecher.offers.isBanned(faceOf(villain.Listening()[0])) })
	for _, h := range honest {
		if leecher.offers.isBanned(faceOf(h.Listening()[0])) {
			t.Error("an honest peer is banned too")
		}
	}
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, src, good, out)
}
