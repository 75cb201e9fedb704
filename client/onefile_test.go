package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"

	"braid/storage"
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
			if p.Dropped > 0 || s.offers.isBanned(suspectOf(honest.Listening()[0].origin())) || len(s.engine.BadPeerIPs()) > 0 {
				t.Errorf("an honest peer is blamed for a block of an earlier download: %+v", p)
			}
			got, err := os.ReadFile(filepath.Join(out, "file"))
			if err != nil || !bytes.Equal(got, b) {
				t.Errorf("the file differs: %v", err)
			}
		})
	}
}

// unreadable is a store that cannot read a piece when it is read first, as after a write to a full
// disk.
type unreadable struct{ storage.Store }

func (s unreadable) OpenTorrent(ctx context.Context, info *metainfo.Info, hash metainfo.Hash) (engine.TorrentImpl, error) {
	t, err := s.Store.OpenTorrent(ctx, info, hash)
	inner := t.Piece
	var failed sync.Map
	t.Piece = func(p metainfo.Piece) engine.PieceImpl { return unreadablePiece{inner(p), &failed, p.Index()} }
	return t, err
}

type unreadablePiece struct {
	engine.PieceImpl
	failed *sync.Map
	index  int
}

func (p unreadablePiece) ReadAt(b []byte, off int64) (int, error) {
	if p.isFirst() {
		return 0, syscall.ENOSPC
	}
	return p.PieceImpl.ReadAt(b, off)
}

// WriteTo is how the engine reads a piece to hash it.
func (p unreadablePiece) WriteTo(w io.Writer) (int64, error) {
	if p.isFirst() {
		return 0, syscall.ENOSPC
	}
	return p.PieceImpl.(io.WriterTo).WriteTo(w)
}

func (p unreadablePiece) isFirst() bool {
	_, again := p.failed.LoadOrStore(p.index, nil)
	return !again
}

// A piece that the disk could not read is fetched again, and nobody is suspected or asked for less
// meanwhile.
func TestUnreadablePieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length, pieces = 64 << 10, 100
		dir := t.TempDir()
		data := filepath.Join(dir, "file")
		writeRandom(t, data, length*pieces)
		src := makeTorrent(t, data, CreateOptions{PieceLength: length}).Source
		s := steady{data: readFile(t, data), length: length, pause: time.Millisecond}
		sim := simulated{peers: map[string]func(net.Conn){"10.0.0.1:1": func(c net.Conn) { s.serve(c, src) }},
			wrap: func(s storage.Store) storage.Store { return unreadable{s} }}
		tried := false
		took := simulateDownload(t, src, dir, sim, func(tr *Transfer) {
			for range 10_000 {
				select {
				case <-tr.Done():
					return
				case <-time.After(time.Millisecond):
					tried = tried || tr.loop.trials.busy.Load()
				}
			}
		})
		// Each block is sent twice.
		if least := 2 * pieces * length / (16 << 10) * time.Millisecond; tried || took < least || took > 2*least {
			t.Errorf("done after %v; somebody was suspected: %v", took, tried)
		}
	})
}

// A piece cannot be read for an upload, and is fetched again. Whether the new data is right is
// told: it was read.
func TestVerdictAfterFailedUpload(t *testing.T) {
	const length = 16 << 10
	dir := t.TempDir()
	data := filepath.Join(dir, "file")
	writeRandom(t, data, length)
	src := makeTorrent(t, data, CreateOptions{PieceLength: length}).Source
	store, err := storage.Open(storage.KindFile, t.TempDir(), testLog(t), storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var wrong []int
	s := &oneFile{Store: unreadable{store}, hashed: func(piece int, right bool) {
		if !right {
			wrong = append(wrong, piece)
		}
	}}
	tor, err := s.OpenTorrent(t.Context(), src.Info, src.InfoHash)
	if err != nil {
		t.Fatal(err)
	}
	p := tor.Piece(src.Info.Piece(0))
	b := make([]byte, length)
	if _, err := p.ReadAt(b, 0); err == nil {
		t.Error("the first read does not fail")
	}
	_, err1 := p.WriteAt(b, 0)
	_, err2 := p.ReadAt(b, 0)
	if err := errors.Join(err1, err2, p.MarkNotComplete()); err != nil || len(wrong) != 1 {
		t.Errorf("wrong are %v, %v; want piece 0", wrong, err)
	}
	if err := errors.Join(tor.Close(), store.Close()); err != nil {
		t.Error(err)
	}
}
