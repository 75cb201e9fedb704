package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"
)

// blockAt is a block of a piece.
type blockAt struct{ begin, length int64 }

func blocksOf(l Layout, piece int) (out []blockAt) {
	for i := range l.blocksIn(piece) {
		out = append(out, blockAt{int64(i) * blockSize, int64(l.blockLength(piece, i))})
	}
	return out
}

func writeBlock(t *testing.T, tor engine.TorrentImpl, info *metainfo.Info, data []byte, piece int, b blockAt) {
	t.Helper()
	mp := info.Piece(piece)
	if _, err := tor.Piece(mp).WriteAt(data[mp.Offset()+b.begin:][:b.length], b.begin); err != nil {
		t.Fatal(err)
	}
}

// on lists the blocks of a piece that are on disk. Each must be what was written.
func on(t *testing.T, s Store, l Layout, data []byte, piece int) (out []int) {
	t.Helper()
	blocks := BlocksOf(s, metainfo.Hash{9})
	off, _ := l.PieceRange(piece)
	for i, b := range blocksOf(l, piece) {
		if !blocks.Has(piece, b.begin, b.length) {
			continue
		}
		out = append(out, i)
		got := make([]byte, b.length)
		if err := blocks.Read(got, piece, b.begin); err != nil || !bytes.Equal(got, data[off+b.begin:][:b.length]) {
			t.Errorf("block %d of piece %d is read differently: %v", i, piece, err)
		}
	}
	return out
}

// copyDir is what a kill leaves: all that was given to the system.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := fastDir(t)
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// Blocks of pieces that are not complete are there at the next start, in every backend, after an
// orderly end and after a kill.
func TestBlocksAreKept(t *testing.T) {
	for _, c := range []struct {
		name string
		// end ends the download and returns the directory that the next one finds.
		end     func(t *testing.T, dir string, s Store, tor engine.TorrentImpl) string
		opts    Options
		nothing bool // is kept
	}{
		{name: "closed", end: func(t *testing.T, dir string, s Store, tor engine.TorrentImpl) string {
			closeStore(t, s, tor)
			return dir
		}},
		{name: "killed after a sync", end: func(t *testing.T, dir string, s Store, tor engine.TorrentImpl) string {
			x := tor.Piece(metainfo.Piece{Info: &metainfo.Info{PieceLength: 1}}).(piece).torrent
			x.writer.flush()
			for p := range 4 {
				if err := x.writer.flushPiece(p); err != nil {
					t.Fatal(err)
				}
			}
			if err := x.sync(); err != nil {
				t.Fatal(err)
			}
			killed := copyDir(t, dir)
			closeStore(t, s, tor)
			return killed
		}},
		{name: "recheck", end: func(t *testing.T, dir string, s Store, tor engine.TorrentImpl) string {
			closeStore(t, s, tor)
			return dir
		}, opts: Options{Recheck: anyTorrent}, nothing: true},
		{name: "data deleted", end: func(t *testing.T, dir string, s Store, tor engine.TorrentImpl) string {
			closeStore(t, s, tor)
			err := errors.Join(os.RemoveAll(filepath.Join(dir, "set")), os.RemoveAll(filepath.Join(dir, boltPath(metainfo.Hash{9}))))
			if err != nil {
				t.Fatal(err)
			}
			return dir
		}, nothing: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, kind Kind) {
				info, l, data := shape(t, 200_000, 150_000, 7, 0, -5000, 500_000, 100_000)
				dir := fastDir(t)
				s, tor := openStore(t, kind, dir, info)
				want := map[int][]int{}
				for p := range l.Pieces() {
					for i, b := range blocksOf(l, p) {
						if p == 1 || (i+p)%3 == 0 {
							writeBlock(t, tor, info, data, p, b)
							if p != 1 {
								want[p] = append(want[p], i)
							}
						}
					}
				}
				if err := writePiece(tor, info, data, 1); err != nil { // of a complete piece none is named
					t.Fatal(err)
				}
				dir = c.end(t, dir, s, tor)
				if c.nothing {
					clear(want)
				}
				for range 2 { // the next start leaves them, too
					s, tor = openStore(t, kind, dir, info, c.opts)
					for p := range l.Pieces() {
						if got := on(t, s, l, data, p); fmt.Sprint(got) != fmt.Sprint(want[p]) {
							t.Errorf("piece %d has blocks %v, want %v", p, got, want[p])
						}
					}
					closeStore(t, s, tor)
				}
			})
		})
	}
}

// A piece that is made of kept blocks hashes itself. If it is wrong nobody is to blame, its blocks
// are forgotten at once and for good, and from then on it is a piece like any other.
func TestWrongBlocksAreForgotten(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		info, l, data := shape(t, 100_000, 250_000)
		wrong := bytes.Clone(data)
		wrong[20_000] ^= 1
		dir := fastDir(t)
		s, tor := openStore(t, kind, dir, info)
		blocks := blocksOf(l, 0)
		for _, b := range blocks[:3] {
			writeBlock(t, tor, info, wrong, 0, b)
		}
		closeStore(t, s, tor)

		s, tor = openStore(t, kind, dir, info)
		kept := BlocksOf(s, metainfo.Hash{9})
		untaken := kept.Untaken()
		for _, b := range blocks {
			if !kept.Has(0, b.begin, b.length) {
				writeBlock(t, tor, info, data, 0, b)
				if kept.Taken(0, b.begin, b.length) {
					t.Error("a block of a peer is said to come from disk")
				}
				continue
			}
			if err := kept.Read(make([]byte, b.length), 0, b.begin); err != nil {
				t.Fatal(err)
			}
			writeBlock(t, tor, info, wrong, 0, b)
			if !kept.Taken(0, b.begin, b.length) {
				t.Error("a block from disk is said to come from a peer")
			}
		}
		if after := kept.Untaken(); untaken != 3*blockSize || after != 0 {
			t.Errorf("%d bytes are not taken before, %d after", untaken, after)
		}
		impl := tor.Piece(info.Piece(0))
		if _, err := impl.(engine.SelfHashing).SelfHash(); !errors.Is(err, errKeptWrong) {
			t.Errorf("the hash of a wrong piece: %v", err)
		}
		if err := impl.MarkNotComplete(); err != nil {
			t.Fatal(err)
		}
		if err := kept.Read(make([]byte, blockSize), 0, 0); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a forgotten block can be read: %v", err)
		}
		killed := copyDir(t, dir)
		for _, b := range blocks {
			if kept.Has(0, b.begin, b.length) {
				t.Fatal("a block of a wrong piece is kept")
			}
			writeBlock(t, tor, info, data, 0, b)
		}
		sum, err := tor.Piece(info.Piece(0)).(engine.SelfHashing).SelfHash()
		if err != nil || l.pieceHash(0) != sum {
			t.Errorf("the hash of a right piece: %v", err)
		}
		if err := tor.Piece(info.Piece(0)).MarkComplete(); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s, tor)

		s, tor = openStore(t, kind, killed, info)
		if got := on(t, s, l, data, 0); got != nil {
			t.Errorf("after a kill blocks %v of a wrong piece are back", got)
		}
		closeStore(t, s, tor)
	})
}

// A piece that is hashed before all of it is there keeps its blocks.
func TestUnfinishedPieceKeepsBlocks(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		info, l, data := shape(t, 100_000, 250_000)
		s, tor := openStore(t, kind, fastDir(t), info)
		defer closeStore(t, s, tor)
		writeBlock(t, tor, info, data, 0, blocksOf(l, 0)[2])
		if hashAndMark(t, tor.Piece(info.Piece(0)), info, 0) {
			t.Fatal("right")
		}
		if got := on(t, s, l, data, 0); fmt.Sprint(got) != "[2]" {
			t.Errorf("blocks %v", got)
		}
	})
}

// A file that somebody else has changed since the download ended has no blocks.
func TestBlocksOfForeignFiles(t *testing.T) {
	info, l, data := shape(t, 100_000, 250_000)
	dir := fastDir(t)
	s, tor := openStore(t, KindFile, dir, info)
	for p := range l.Pieces() { // all of them checked, so that the file is recorded as it is left
		writeBlock(t, tor, info, data, p, blocksOf(l, p)[0])
		hashAndMark(t, tor.Piece(info.Piece(p)), info, p)
	}
	closeStore(t, s, tor)
	name := filepath.Join(dir, l.Files[0].Path+partSuffix)
	if err := os.Chtimes(name, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	s, tor = openStore(t, KindFile, dir, info)
	defer closeStore(t, s, tor)
	for p := range l.Pieces() {
		if got := on(t, s, l, data, p); got != nil {
			t.Errorf("piece %d has blocks %v", p, got)
		}
	}
}

// What waits to be recorded is bounded: a kill costs no more than the writer may be behind.
func TestUnrecordedIsBounded(t *testing.T) {
	l := Layout{PieceLength: 64 << 20, Length: 64 << 20}
	asked := make(chan struct{}, 1)
	w := newWriteBuffer(l, nil, func([]byte, int64) error { return nil }, func() {
		select {
		case asked <- struct{}{}:
		default:
		}
	})
	defer w.close()
	stop := make(chan struct{})
	recorded := make(chan int)
	go func() {
		n := 0
		defer func() { recorded <- n }()
		for {
			select {
			case <-asked:
			case <-stop:
				return
			}
			w.mu.Lock()
			if most := w.bytes + w.blocks.unrecorded + inPut; most > maxBuffered {
				t.Errorf("%d bytes wait", most)
			}
			w.mu.Unlock()
			w.blocks.note()
			w.blocks.recorded(true)
			n++
		}
	}()
	for off := int64(0); off < l.Length; off += blockSize {
		if err := w.put(0, make([]byte, blockSize), off); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if n := <-recorded; n < int(l.Length/maxBuffered)-1 {
		t.Errorf("%d syncs for %d MiB", n, l.Length>>20)
	}
}

// The record's blocks may be anything: what is taken of them lies in the torrent, in pieces that
// are not complete.
func FuzzKeptBlocks(f *testing.F) {
	f.Add(uint32(0), []byte{0xff, 0xff}, uint32(1), []byte{0x80})
	f.Add(uint32(2), []byte{0xff, 0xff, 0xff}, uint32(9), []byte{})
	f.Add(uint32(1), []byte{0xff, 0xff}, ^uint32(0), []byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, p1 uint32, bits1 []byte, p2 uint32, bits2 []byte) {
		l := Layout{PieceLength: 150_000, Length: 400_000, Files: []File{{"a", 200_000, 0}, {"b", 190_000, 210_000}}}
		saved := newState(l)
		saved.Owned.set(0)
		saved.Blocks[int(int32(p1))], saved.Blocks[int(int32(p2))] = bits1, bits2
		now := []stamp{{size: 180_000}, {size: 190_000}}
		read := func(saved state) map[int]bitset {
			b, err := saved.encode()
			if err != nil {
				t.Fatal(err)
			}
			if saved, err = decodeState(b, l); err != nil {
				t.Fatal(err)
			}
			r := &record{layout: l, pieces: &verdicts{right: []bool{true, false, false}}, saved: saved}
			return r.keptIn(saved.Blocks, r.lacks(now, []int{0}, true))
		}
		kept := read(saved)
		for p, bits := range kept {
			if p <= 0 || p >= l.Pieces() || len(bits) != (l.blocksIn(p)+7)/8 {
				t.Fatalf("piece %d, %d bytes", p, len(bits))
			}
		}
		blocks := newBlocks(l, kept, sync.NewCond(&sync.Mutex{}))
		for p := range l.Pieces() {
			for _, b := range blocksOf(l, p) {
				off, _ := l.PieceRange(p)
				if blocks.has(p, b.begin, b.length) && (p == 0 || off+b.begin < 200_000 && off+b.begin+b.length > 180_000) {
					t.Errorf("a block at %d of piece %d", b.begin, p)
				}
			}
		}
		saved.Blocks = kept
		if again := read(saved); !maps.EqualFunc(kept, again, slices.Equal) {
			t.Errorf("%v is read back as %v", kept, again)
		}
	})
}

// A record that names blocks of too many pieces is read in part.
func TestRecordOfBlocks(t *testing.T) {
	info, l, data := shape(t, blockSize, int64(blockSize*(maxPartial+100)))
	dir := fastDir(t)
	s, tor := openStore(t, KindFile, dir, info)
	for _, p := range []int{3, l.Pieces() - 1} {
		writeBlock(t, tor, info, data, p, blockAt{0, blockSize})
	}
	rec := tor.Piece(info.Piece(0)).(piece).torrent.record
	closeStore(t, s, tor)
	saved, ok := (Stored{KindFile, dir, metainfo.Hash{9}, l}).record()
	if n := len(saved.Blocks); !ok || n != 2 {
		t.Errorf("%d pieces have blocks, want 2", n)
	}
	s, err := Open(KindFile, dir, slog.New(slog.DiscardHandler), Options{})
	if err != nil {
		t.Fatal(err)
	}
	rec.store = s.(*store)
	all := map[int]bitset{}
	for p := range l.Pieces() {
		all[p] = bitset{0x80}
	}
	rec.pieces.note()
	if err := errors.Join(rec.checkpoint(all, nil, nil), s.Close()); err != nil {
		t.Fatal(err)
	}
	s, tor = openStore(t, KindFile, dir, info)
	if n := len(tor.Piece(info.Piece(0)).(piece).torrent.writer.blocks.pieces); n != maxPartial {
		t.Errorf("the blocks of %d pieces are kept, want %d", n, maxPartial)
	}
	closeStore(t, s, tor)
}
