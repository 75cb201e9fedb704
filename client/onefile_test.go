package client

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Blocks of an earlier download make up for what is not fetched. Are they wrong, their piece is
// fetched whole, once, and the peers that have sent the rest are not blamed.
func TestKeptBlocks(t *testing.T) {
	t.Parallel()
	const pieceLength, size, there = 256 << 10, 1 << 20, 10 * 16 << 10
	for _, c := range []struct {
		name  string
		spoil bool
		again int64
	}{{"right", false, 0}, {"wrong", true, pieceLength}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			data, out := t.TempDir(), t.TempDir()
			writeRandom(t, filepath.Join(data, "file"), size)
			src := makeTorrent(t, filepath.Join(data, "file"), CreateOptions{PieceLength: pieceLength}).Source
			b, err := os.ReadFile(filepath.Join(data, "file"))
			if err != nil {
				t.Fatal(err)
			}
			earlier := bytes.Clone(b[:there])
			if c.spoil {
				earlier[20_000] ^= 1
			}
			store := openStore(t, out)
			tor, err := store.OpenTorrent(t.Context(), src.Info, src.InfoHash)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tor.Piece(src.Info.Piece(0)).WriteAt(earlier, 0); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(tor.Close(), store.Close()); err != nil {
				t.Fatal(err)
			}

			store = openStore(t, out)
			honest := seed(t, src, data)
			s := openSession(t, Config{})
			tr, err := s.Add(src, store, Options{})
			if err != nil {
				t.Fatal(err)
			}
			until(t, tr, "begun", func(p Progress) bool { return p.Have == there })
			tr.AddPeers(honest.Listening()...)
			p := wait(t, tr)
			tr.Close()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			if want := size - there + c.again; p.Fetched != want || p.Have != size {
				t.Errorf("fetched %d bytes and have %d, want %d and %d", p.Fetched, p.Have, want, size)
			}
			if p.Dropped > 0 || s.offers.isBanned(suspectOf(honest.Listening()[0].origin())) || len(s.engine.BadHosts()) > 0 {
				t.Errorf("an honest peer is blamed for a block of an earlier download: %+v", p)
			}
			got, err := os.ReadFile(filepath.Join(out, "file"))
			if err != nil || !bytes.Equal(got, b) {
				t.Errorf("the file differs: %v", err)
			}
		})
	}
}
