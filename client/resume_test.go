package client

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"braid/storage"
)

// slowSeed serves at a limited rate, so that there is a middle of the download.
func slowSeed(t *testing.T, src Source, dir string, bytesPerSecond int) *Session {
	t.Helper()
	tcp, err := openTCP([]Peer{mustPeer(t, "127.0.0.1:0")}, "", nil, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSession(Config{}, testLog(t), []Transport{slow{tcp, rate.NewLimiter(rate.Limit(bytesPerSecond), 64<<10)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Add(src, storage.OpenVerified(dir, testLog(t)), Options{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// A download that is interrupted in the middle leaves .part files and resumes from them: only the
// rest is fetched.
func TestResume(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		// between is what happens to the files before the download goes on.
		between func(t *testing.T, dir string)
		extra   int64 // bytes that may be fetched again
	}{
		{"untouched", func(*testing.T, string) {}, 0},
		{"killed", func(t *testing.T, dir string) {
			// As after kill -9: files were written to since the record was, and whole pieces of
			// them are there.
			now := time.Now()
			err := filepath.WalkDir(filepath.Join(dir, "set"), func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				return os.Chtimes(path, now, now)
			})
			if err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"changed", func(t *testing.T, dir string) {
			// One byte of the first piece, behind our back.
			f, err := os.OpenFile(filepath.Join(dir, "set", "d0", "f0.part"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			b := make([]byte, 1)
			if _, err := f.ReadAt(b, 7); err != nil {
				t.Fatal(err)
			}
			b[0]++
			if _, err := f.WriteAt(b, 7); err != nil {
				t.Fatal(err)
			}
		}, 32 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			data, out := t.TempDir(), t.TempDir()
			randomFiles(t, data, "set", 6<<20, 50_000)
			src := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{PieceLength: 32 << 10}).Source
			seeder := slowSeed(t, src, data, 4<<20)
			store := openStore(t, out)
			s := openSession(t, Config{})
			tr, err := s.Add(src, store, Options{Peers: seeder.Listening()})
			if err != nil {
				t.Fatal(err)
			}
			until(t, tr, "half done", func(p Progress) bool { return p.Have > p.Total/2 })
			tr.Close()
			first := tr.Progress()
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if first.Done == 0 || first.Done == first.Pieces {
				t.Fatalf("interrupted with %d of %d pieces", first.Done, first.Pieces)
			}
			for _, f := range src.Layout.Files {
				if _, err := os.Stat(filepath.Join(out, f.Path)); err == nil && strings.HasSuffix(f.Path, "f0") {
					t.Errorf("%s has its final name half-way", f.Path)
				}
			}
			c.between(t, out)

			store = openStore(t, out)
			fast := seed(t, src, data)
			tr, err = s.Add(src, store, Options{Peers: fast.Listening()})
			if err != nil {
				t.Fatal(err)
			}
			second := wait(t, tr)
			tr.Close()
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			// What was in flight when it ended is fetched again; pieces that were there are not.
			there := int64(first.Done) * src.Layout.PieceLength
			if most := src.Layout.Length - there + c.extra + src.Layout.PieceLength; second.Fetched > most {
				t.Errorf("fetched %d bytes more, at most %d were missing", second.Fetched, most)
			}
			sameFiles(t, src, data, out)
		})
	}
}
