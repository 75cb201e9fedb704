package client

import (
	"os"
	"path/filepath"
	"testing"

	"braid/storage"
)

// superSeed serves a file, and is the only one who does.
func superSeed(t *testing.T, dir string, src Source, mode SuperSeeding) (*Session, *Transfer) {
	t.Helper()
	s := openSession(t, Config{Listen: []Peer{mustPeer(t, "127.0.0.1:0")}})
	store, err := storage.OpenVerifiedIn("file", dir, testLog(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	tr, err := s.Add(src, store, Options{SuperSeeding: mode})
	if err != nil {
		t.Fatal(err)
	}
	return s, tr
}

// leech downloads into a directory of its own.
func leech(t *testing.T, src Source, opts Options) (*Session, *Transfer, string) {
	t.Helper()
	out := t.TempDir()
	s := openSession(t, Config{Listen: []Peer{mustPeer(t, "127.0.0.1:0")}})
	store := openStore(t, out)
	t.Cleanup(func() { store.Close() })
	tr, err := s.Add(src, store, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s, tr, out
}

// A seed sends leechers that know each other little more than one copy. Who comes later, and knows
// nobody else, gets all too.
func TestSuperSeeding(t *testing.T) {
	for _, mode := range []SuperSeeding{AutoSuperSeeding, AlwaysSuperSeeding} {
		t.Run(mode.String(), func(t *testing.T) {
			const size = 6 << 20
			data := t.TempDir()
			writeRandom(t, filepath.Join(data, "file"), size)
			c := makeTorrent(t, filepath.Join(data, "file"), CreateOptions{PieceLength: 32 << 10})
			seeder, seeding := superSeed(t, data, c.Source, mode)

			known := seeder.Listening()
			var transfers []*Transfer
			var outs []string
			for range 3 {
				s, tr, out := leech(t, c.Source, Options{Peers: known})
				known = append(known, s.Listening()...)
				transfers, outs = append(transfers, tr), append(outs, out)
			}
			for i, tr := range transfers {
				wait(t, tr)
				sameFiles(t, c.Source, data, outs[i])
			}
			if sent := seeding.Progress().Sent; sent > 2*size {
				t.Errorf("sent %d bytes to three leechers for a file of %d", sent, size)
			}
			_, tr, out := leech(t, c.Source, Options{Peers: seeder.Listening()})
			wait(t, tr)
			sameFiles(t, c.Source, data, out)
		})
	}
}

// Who wants one file of many gets it, though the seed does not know which.
func TestSuperSeedingOfAPart(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	randomFiles(t, data, "set", 1<<20, 1<<20, 1<<20, 300_000)
	c := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{PieceLength: 16 << 10})
	seeder, _ := superSeed(t, data, c.Source, AutoSuperSeeding)
	_, tr, _ := leech(t, c.Source, Options{Peers: seeder.Listening(), Selection: Selection{Select: []string{"f3"}}})
	if p := wait(t, tr); p.Have < 300_000 {
		t.Errorf("has %d bytes", p.Have)
	}
}

// A download that is to be a super-seed shares the pieces that it has. When it is complete, peers
// get the rest.
func TestSuperSeedingOfADownload(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	data, half := t.TempDir(), t.TempDir()
	writeRandom(t, filepath.Join(data, "file"), size)
	src := makeTorrent(t, filepath.Join(data, "file"), CreateOptions{PieceLength: 16 << 10}).Source
	b := readFile(t, filepath.Join(data, "file"))
	clear(b[size/2:])
	if err := os.WriteFile(filepath.Join(half, "file"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	s := openSession(t, Config{Listen: []Peer{mustPeer(t, "127.0.0.1:0")}})
	store := openStore(t, half)
	t.Cleanup(func() { store.Close() })
	tr, err := s.Add(src, store, Options{SuperSeeding: AlwaysSuperSeeding})
	if err != nil {
		t.Fatal(err)
	}
	until(t, tr, "half", func(p Progress) bool { return p.Have == size/2 && p.Phase == Downloading })
	_, other, _ := leech(t, src, Options{Peers: s.Listening()})
	until(t, other, "half", func(p Progress) bool { return p.Have == size/2 })
	tr.AddPeers(seed(t, src, data).Listening()...)
	wait(t, tr)
	wait(t, other)
}
