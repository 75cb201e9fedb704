package storage

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"
)

// What every backend must do. A torrent is written and read as the engine does it.

var kinds = []Kind{KindFile, KindMmap, KindBolt}

func eachKind(t *testing.T, test func(t *testing.T, kind Kind)) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			test(t, k)
		})
	}
}

// shape is a torrent of random data in files of these lengths; a negative one is padding (BEP 47).
func shape(t testing.TB, pieceLength int64, lengths ...int64) (*metainfo.Info, Layout, []byte) {
	t.Helper()
	info := &metainfo.Info{Name: "set", PieceLength: pieceLength}
	random := rand.NewChaCha8([32]byte{7})
	var data []byte
	for i, n := range lengths {
		f := metainfo.FileInfo{Length: max(n, -n), Path: []string{fmt.Sprintf("d%d", i%3), fmt.Sprintf("f%d", i)}}
		b := make([]byte, f.Length)
		if n < 0 {
			f.Attr, f.Path = "p", []string{".pad", fmt.Sprint(-n)}
		} else {
			random.Read(b)
		}
		info.Files = append(info.Files, f)
		data = append(data, b...)
	}
	for rest := data; len(rest) > 0; rest = rest[min(len(rest), int(pieceLength)):] {
		sum := sha1.Sum(rest[:min(len(rest), int(pieceLength))])
		info.Pieces = append(info.Pieces, sum[:]...)
	}
	l, err := NewLayout(info)
	if err != nil {
		t.Fatal(err)
	}
	return info, l, data
}

var shapes = []struct {
	name    string
	piece   int64
	lengths []int64
}{
	{"one byte", 16 << 10, []int64{1}},
	{"last piece of one byte", 16 << 10, []int64{32<<10 + 1}},
	{"empty files", 16 << 10, []int64{0, 20_000, 0, 0, 5, 0}},
	{"padding", 16 << 10, []int64{20_000, -(12768), 40_000, -(9152)}},
	{"a piece over many files", 64 << 10, repeat(700, 150)},
	{"large pieces", 1 << 20, []int64{3<<20 + 12345, 1000, 2 << 20}},
	{"odd pieces", 50_001, []int64{123_456, 7, 300_000}},
}

func repeat(n int64, times int) (out []int64) {
	for range times {
		out = append(out, n)
	}
	return out
}

func writePiece(tor engine.TorrentImpl, info *metainfo.Info, data []byte, p int) error {
	mp := info.Piece(p)
	want := data[mp.Offset() : mp.Offset()+mp.Length()]
	impl := tor.Piece(mp)
	const block = 16 << 10
	for off := 0; off < len(want); off += block {
		part := want[off:min(len(want), off+block)]
		if n, err := impl.WriteAt(part, int64(off)); err != nil || n != len(part) {
			return fmt.Errorf("write piece %d: %d, %w", p, n, err)
		}
	}
	read := func() error {
		got := make([]byte, len(want))
		if _, err := impl.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("piece %d reads differently: %w", p, err)
		}
		return nil
	}
	hash := func() error {
		var got bytes.Buffer
		n, err := impl.(io.WriterTo).WriteTo(&got)
		if err != nil || n != mp.Length() || !bytes.Equal(got.Bytes(), want) {
			return fmt.Errorf("%d bytes of piece %d are written differently: %w", n, p, err)
		}
		return nil
	}
	if p%2 == 0 { // each must wait until the blocks are written
		read, hash = hash, read
	}
	for _, do := range []func() error{read, hash, impl.MarkComplete} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// Pieces are written by several writers at once while others are read; they are there after a
// restart, known to be right, without a look at the data; and make the right files.
func TestConformance(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		for _, c := range shapes {
			t.Run(c.name, func(t *testing.T) {
				info, l, data := shape(t, c.piece, c.lengths...)
				dir := t.TempDir()
				s, tor := openStore(t, kind, dir, info)
				pieces := info.NumPieces()
				for p := range pieces {
					if got := tor.Piece(info.Piece(p)).Completion(); got.Complete {
						t.Errorf("piece %d is complete before it was written", p)
					}
				}
				var wg sync.WaitGroup
				for w := range 4 {
					wg.Go(func() {
						for p := w; p < pieces; p += 4 {
							if err := writePiece(tor, info, data, p); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Go(func() {
					if err := tor.Piece(info.Piece(0)).(piece).torrent.sync(); err != nil {
						t.Error(err)
					}
				})
				wg.Wait()
				closeStore(t, s, tor)

				stored := Stored{kind, dir, metainfo.Hash{9}, l}
				if !stored.Trusted() {
					t.Error("the record does not vouch for what was just written")
				}
				if r, err := stored.Check(t.Context(), nil); err != nil || !r.Complete() {
					t.Errorf("check: %+v, %v", r, err)
				}
				s, tor = openStore(t, kind, dir, info)
				for p := range pieces {
					if c := tor.Piece(info.Piece(p)).Completion(); !c.Ok || !c.Complete {
						t.Errorf("piece %d after a restart: %+v", p, c)
					}
				}
				closeStore(t, s, tor)

				// Served without a store for downloads.
				v, err := OpenVerifiedIn(kind, dir, slog.New(slog.DiscardHandler), nil)
				if err != nil {
					t.Fatal(err)
				}
				tor, err = v.OpenTorrent(t.Context(), info, metainfo.Hash{9})
				if err != nil {
					t.Fatal(err)
				}
				for p := range pieces {
					mp := info.Piece(p)
					got := make([]byte, mp.Length())
					if _, err := tor.Piece(mp).ReadAt(got, 0); err != nil || !bytes.Equal(got, data[mp.Offset():mp.Offset()+mp.Length()]) {
						t.Errorf("piece %d is served differently: %v", p, err)
					}
				}
				if err := tor.Close(); err != nil {
					t.Error(err)
				}

				out := dir
				if kind == KindBolt {
					out = t.TempDir()
					if err := stored.Export(t.Context(), out, slog.New(slog.DiscardHandler), nil, Options{}); err != nil {
						t.Fatal(err)
					}
				}
				sameData(t, out, l, data)
			})
		}
	})
}

func sameData(t *testing.T, dir string, l Layout, data []byte) {
	t.Helper()
	for _, f := range l.Files {
		got, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(f.Path)))
		if err != nil || !bytes.Equal(got, data[f.Offset:f.Offset+f.Length]) {
			t.Errorf("%s differs: %v", f.Path, err)
		}
	}
	// Nothing but the files, and no file for padding.
	n := 0
	err := filepath.WalkDir(filepath.Join(dir, l.Name), func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	})
	if err != nil || n != len(l.Files) {
		t.Errorf("%d files, want %d: %v", n, len(l.Files), err)
	}
}

// model is what a backend is compared with: the bytes that were written, and what is known of each
// piece.
type model struct {
	data    []byte
	written []bool
	right   []bool
}

// Random writes, reads, marks, syncs and restarts, against a model. Blocks are of any size at any
// place, also on top of others; pieces are marked by what they hold.
func TestModel(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		for seed := range uint64(6) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) { modelRun(t, kind, seed) })
		}
	})
}

func modelRun(t *testing.T, kind Kind, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	lengths := []int64{0}
	for range 1 + random.IntN(12) {
		lengths = append(lengths, []int64{random.Int64N(50), random.Int64N(300_000), -1 - random.Int64N(3000), 0}[random.IntN(4)])
	}
	lengths = append(lengths, 1+random.Int64N(600_000))
	info, l, data := shape(t, 20_000+random.Int64N(400_000), lengths...)
	padding := make([]bool, len(data))
	for i := range padding {
		padding[i] = true
	}
	for _, f := range l.Files {
		clear(padding[f.Offset : f.Offset+f.Length])
	}
	m := model{make([]byte, len(data)), make([]bool, len(data)), make([]bool, l.Pieces())}
	dir := fastDir(t)
	s, tor := openStore(t, kind, dir, info)
	for step := range 200 {
		p := random.IntN(l.Pieces())
		mp := info.Piece(p)
		impl := tor.Piece(mp)
		off, end := mp.Offset(), mp.Offset()+mp.Length()
		at := random.Int64N(mp.Length())
		n := 1 + random.Int64N(mp.Length()-at)
		switch op := random.IntN(20); {
		case op < 7: // right data, or on top of a piece that is not right, wrong data
			b := bytes.Clone(data[off+at : off+at+n])
			if op == 0 && !m.right[p] {
				b[random.IntN(len(b))] ^= 0x55
			}
			if _, err := impl.WriteAt(b, at); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if !padding[off+at+i] {
					m.data[off+at+i] = b[i]
				}
				m.written[off+at+i] = true
			}
		case op < 12: // read what was written
			if first := slices.Index(m.written[off+at:off+at+n], false); first >= 0 {
				n = int64(first)
			}
			if n == 0 {
				continue
			}
			got := make([]byte, n)
			if _, err := impl.ReadAt(got, at); err != nil || !bytes.Equal(got, m.data[off+at:off+at+n]) {
				t.Fatalf("step %d: %d bytes of piece %d at %d read differently: %v", step, n, p, at, err)
			}
		case op < 14: // the whole piece
			if m.right[p] {
				continue
			}
			if err := writePiece(tor, info, data, p); err != nil {
				t.Fatal(err)
			}
			copy(m.data[off:end], data[off:end])
			for i := off; i < end; i++ {
				m.written[i] = true
			}
			m.right[p] = true
		case op < 15 && random.IntN(4) == 0:
			if err := impl.MarkNotComplete(); err != nil {
				t.Fatal(err)
			}
			m.right[p] = false
		case op < 17:
			if err := impl.(piece).torrent.sync(); err != nil {
				t.Fatal(err)
			}
		case op < 18:
			closeStore(t, s, tor)
			s, tor = openStore(t, kind, dir, info)
			for p := range m.right {
				if impl := tor.Piece(info.Piece(p)); !impl.Completion().Ok {
					if m.right[p] {
						t.Fatalf("step %d: right piece %d is not known after a restart", step, p)
					}
					m.right[p] = hashAndMark(t, impl, info, p)
					off, end := info.Piece(p).Offset(), info.Piece(p).Offset()+info.Piece(p).Length()
					if m.right[p] != bytes.Equal(m.data[off:end], data[off:end]) {
						t.Fatalf("step %d: piece %d: hashed as %v", step, p, m.right[p])
					}
				}
			}
		}
		for p := range m.right {
			if got := tor.Piece(info.Piece(p)).Completion(); got.Complete != m.right[p] || m.right[p] && !got.Ok {
				t.Fatalf("step %d: piece %d: %+v, want %v", step, p, got, m.right[p])
			}
		}
	}
	for p := range l.Pieces() {
		if err := writePiece(tor, info, data, p); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s, tor)
	out := dir
	if kind == KindBolt {
		out = t.TempDir()
		if err := (Stored{kind, dir, metainfo.Hash{9}, l}).Export(t.Context(), out, slog.New(slog.DiscardHandler), nil, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	sameData(t, out, l, data)
}

// hashAndMark is what the engine does with a piece of which nothing is known.
func hashAndMark(t testing.TB, impl engine.PieceImpl, info *metainfo.Info, p int) bool {
	t.Helper()
	b := make([]byte, info.Piece(p).Length())
	_, err := impl.ReadAt(b, 0)
	sum := sha1.Sum(b)
	right := err == nil && bytes.Equal(sum[:], info.Pieces[20*p:20*p+20])
	if right {
		err = impl.MarkComplete()
	} else {
		err = impl.MarkNotComplete()
	}
	if err != nil {
		t.Fatal(err)
	}
	return right
}
