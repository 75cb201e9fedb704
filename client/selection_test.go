package client

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"braid/storage"
)

func TestMatchFile(t *testing.T) {
	for _, c := range []struct {
		pattern, file string
		want          bool
	}{
		{"*.iso", "set/a.iso", true},
		{"*.iso", "set/docs/b.iso", true},
		{"*.iso", "set/docs/b.pdf", false},
		{"docs", "set/docs/b.pdf", true},
		{"docs/*", "set/docs/b.pdf", true},
		{"docs/*", "set/docs/deep/b.pdf", true},
		{"set/docs/*.pdf", "set/docs/b.pdf", true},
		{"docs/*.iso", "set/docs/b.pdf", false},
		{"/docs/", "set/docs/b.pdf", true},
		{"deep/*", "set/docs/deep/b.pdf", false},
		{"*", "file", true},
		{"file", "file", true},
		{"file/x", "file", false},
	} {
		if got := MatchFile(c.pattern, c.file); got != c.want {
			t.Errorf("MatchFile(%q, %q) = %v", c.pattern, c.file, got)
		}
	}
}

func TestSelection(t *testing.T) {
	low, err := ParseFilePriority("*.log=low")
	if err != nil || low != (FilePriority{"*.log", Low}) {
		t.Errorf("%+v, %v", low, err)
	}
	for _, bad := range []string{"", "x", "x=", "x=urgent", "=high", "[=high"} {
		if p, err := ParseFilePriority(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, p)
		}
	}
	// Pieces of 10 bytes: a has 0 and 1, b 1 and 2, the padding 2 and 3, c piece 4.
	l := storage.Layout{PieceLength: 10, Length: 45, Files: []storage.File{
		{Path: "s/a", Length: 15}, {Path: "s/b", Length: 10, Offset: 15}, {Path: "s/c.log", Length: 5, Offset: 40},
	}}
	for _, c := range []struct {
		name string
		s    Selection
		want []Priority
	}{
		{"all", Selection{}, []Priority{Normal, Normal, Normal, Normal, Normal}},
		{"one", Selection{Select: []string{"b"}}, []Priority{Skip, Normal, Normal, Skip, Skip}},
		{"two", Selection{Select: []string{"a", "c*"}}, []Priority{Normal, Normal, Skip, Skip, Normal}},
		{"low", Selection{Priorities: []FilePriority{low}}, []Priority{Normal, Normal, Normal, Normal, Low}},
		{"the highest in a piece", Selection{Priorities: []FilePriority{{"b", High}, {"c.log", Skip}}}, []Priority{Normal, High, High, Skip, Skip}},
	} {
		if got := c.s.pieces(l); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// allocated is what a file takes on the disk, which is less than its length where it has holes.
func allocated(st fs.FileInfo) int64 { return 512 * st.Sys().(*syscall.Stat_t).Blocks }

// Only the selected file comes, with the pieces that it shares; the transfer is then done; the rest comes when it is
// wanted, and nothing twice.
func TestSelectedFiles(t *testing.T) {
	for _, kind := range []storage.Kind{storage.KindFile, storage.KindMmap, storage.KindBolt} {
		t.Run(string(kind), func(t *testing.T) {
			data, out := t.TempDir(), t.TempDir()
			for name, n := range map[string]int{"set/a": 1_000_000, "set/b/c": 700_000, "set/d": 900_000} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(data, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				writeRandom(t, filepath.Join(data, name), n)
			}
			if err := os.WriteFile(filepath.Join(data, "set/empty"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			src := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{PieceLength: 32 << 10}).Source
			seeder := seed(t, src, data)
			s := openSession(t, Config{})
			pick := Selection{Select: []string{"b"}, Sequential: true}
			run := func(sel Selection) Progress {
				t.Helper()
				store, err := storage.Open(kind, out, testLog(t), storage.Wanted(sel.Wants))
				if err != nil {
					t.Fatal(err)
				}
				tr, err := s.Add(src, store, Options{Peers: seeder.Listening(), Selection: sel})
				if err != nil {
					t.Fatal(err)
				}
				p := wait(t, tr)
				tr.Close()
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				return p
			}
			first := run(pick)
			if first.Phase != Complete || first.Have != first.Total || first.Fetched > 700_000+2*32<<10 {
				t.Errorf("%+v", first)
			}
			if kind != storage.KindBolt {
				var there []string
				err := filepath.WalkDir(filepath.Join(out, "set"), func(path string, d fs.DirEntry, err error) error {
					if err == nil && !d.IsDir() {
						st, _ := d.Info()
						name, _ := filepath.Rel(out, path)
						there = append(there, filepath.ToSlash(name))
						if used := allocated(st); name != "set/b/c" && used > 128<<10 {
							t.Errorf("%s takes %d bytes though it is not selected", name, used)
						}
					}
					return err
				})
				if want := []string{"set/a.part", "set/b/c", "set/d.part"}; err != nil || !slices.Equal(there, want) {
					t.Errorf("files %v, want %v: %v", there, want, err)
				}
			}
			second := run(Selection{})
			if most := src.Layout.Length - first.Have + 32<<10; second.Fetched > most {
				t.Errorf("fetched %d more, want at most %d", second.Fetched, most)
			}
			if kind == storage.KindBolt {
				stored := storage.Stored{Kind: kind, Dir: out, Hash: src.InfoHash, Layout: src.Layout}
				out = t.TempDir()
				if err := stored.Export(t.Context(), out, testLog(t), nil); err != nil {
					t.Fatal(err)
				}
			}
			sameFiles(t, src, data, out)
		})
	}
}
