package client

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/metainfo"

	"braid/storage"
)

func TestMatchFiles(t *testing.T) {
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
		{"[ab].iso", "set/a.iso", true},
		{"[ab].iso", "set/[ab].iso", true},
		{"a [2020].iso", "set/a [2020].iso", true},
		{"a [2020]*", "set/a [2020].iso", true},
		{"[z-a", "set/[z-a", true},
		{"docs [1]/*.pdf", "set/docs [1]/b.pdf", true},
		{`a\b`, `set/a\b`, true},
		{`\#1`, "set/#1", true},
		{"#x", "set/#x", true},
		{"#1", "set/a", true},
		{"#2", "set/#2", false},
	} {
		if got := matchFiles(c.pattern, storage.Layout{Files: []storage.File{{Path: c.file}}})[0]; got != c.want {
			t.Errorf("%q matches %q: %v", c.pattern, c.file, got)
		}
	}
}

// A selection of what is not there is refused, and the message names it.
func TestSelectionCheck(t *testing.T) {
	l := storage.Layout{Name: "s", Files: []storage.File{{Path: "s/a"}, {Path: "s/b"}, {Path: "s/c"}, {Path: "s/#1"}}}
	for _, c := range []struct {
		s    Selection
		want string // names of the wanted files, or the error
	}{
		{Selection{}, "a b c #1"},
		{Selection{Select: []string{"#1,3-4"}}, "a c #1"},
		{Selection{Select: []string{"#2", `\#1`}}, "b #1"},
		{Selection{Priorities: []FilePriority{{"#2-4", Skip}}}, "a"},
		{Selection{Select: []string{"a", "*.iso"}}, `no file of s matches "*.iso"`},
		{Selection{Select: []string{"a", "*.iso"}, Shared: true}, "a"},
		{Selection{Select: []string{"[x"}}, `no file of s matches "[x"`},
		{Selection{Priorities: []FilePriority{{"docs", High}}}, `no file of s matches "docs"`},
		{Selection{Select: []string{"#5"}}, `"#5": s has files 1 to 4`},
		{Selection{Select: []string{"#1-99999"}}, `"#1-99999": s has files 1 to 4`},
		{Selection{Priorities: []FilePriority{{"*", Skip}}}, "no file of s is selected"},
	} {
		got := ""
		if err := c.s.Check(l); err != nil {
			got = err.Error()
		} else {
			var names []string
			for i, wanted := range c.s.Wants(l) {
				if wanted {
					names = append(names, filepath.Base(l.Files[i].Path))
				}
			}
			got = strings.Join(names, " ")
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.s, got, c.want)
		}
	}
	other := storage.Layout{Name: "t", Files: []storage.File{{Path: "t/x.iso"}}}
	if err := (Selection{Select: []string{"a", "*.iso"}}).Check(l, other); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "#0", "#3-2", "#1,0-4", "#99999999999999999999"} {
		if CheckPattern(bad) == nil {
			t.Errorf("pattern %q is taken", bad)
		}
	}
}

func TestSelection(t *testing.T) {
	low, err := ParseFilePriority("*.log=low")
	if err != nil || low != (FilePriority{"*.log", Low}) {
		t.Errorf("%+v, %v", low, err)
	}
	for _, bad := range []string{"", "x", "x=", "x=urgent", "=high", "#0=high"} {
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
// It is 0 on Windows, which does not tell.
func allocated(st fs.FileInfo) int64 {
	blocks := reflect.Indirect(reflect.ValueOf(st.Sys())).FieldByName("Blocks")
	if !blocks.IsValid() {
		return 0
	}
	return 512 * blocks.Int()
}

// Only the selected file comes, with the pieces that it shares; the transfer is then done; the rest
// comes when it is wanted, and nothing twice.
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
				store, err := storage.Open(kind, out, testLog(t), storage.Options{Wanted: func(_ metainfo.Hash, l storage.Layout) []bool { return sel.Wants(l) }})
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
				if err := stored.Export(t.Context(), out, testLog(t), nil, storage.Options{}); err != nil {
					t.Fatal(err)
				}
			}
			sameFiles(t, src, data, out)
		})
	}
}

// What the selection leaves out does not count as the rest of the download.
func TestRemainingOfSelection(t *testing.T) {
	const length = 16 << 10
	dir := t.TempDir()
	randomFiles(t, dir, "set", 2*length, 3*length, 4*length)
	src := makeTorrent(t, filepath.Join(dir, "set"), CreateOptions{PieceLength: length}).Source
	fake := &fakeTorrent{described: make(chan struct{})}
	if err := fake.SetInfoBytes(src.infoBytes); err != nil {
		t.Fatal(err)
	}
	c := chooser{core: &core{common: &common{}, torrent: fake}}
	c.want = newWant(Selection{Select: []string{"f0", "f1"}}, src.Layout)
	for piece, left := range []uint64{5, 4, 3, 2, 1} {
		c.lookAgain = time.Time{}
		c.look()
		if v := c.view(); v.Remaining != left*length {
			t.Errorf("%d bytes remain before piece %d, want %d", v.Remaining, piece, left*length)
		}
		fake.got(piece, length)
	}
}

// priorityNotes is a torrent that notes the priorities of its pieces.
type priorityNotes struct {
	*fakeTorrent
	of map[int]torrent.PiecePriority
}

func (n priorityNotes) SetPriority(piece int, p torrent.PiecePriority) { n.of[piece] = p }

// Files of a higher priority come first in a sequential download, too.
func TestSequentialWithPriorities(t *testing.T) {
	const length = 8 << 20 // four pieces are asked for before the rest
	l := storage.Layout{PieceLength: length, Length: 12 * length, Files: []storage.File{
		{Path: "s/a", Length: 5 * length},
		{Path: "s/b", Length: 2 * length, Offset: 5 * length},
		{Path: "s/c", Length: 5 * length, Offset: 7 * length},
	}}
	s := Selection{Sequential: true, Priorities: []FilePriority{{"a", Low}, {"b", High}}}
	notes := priorityNotes{&fakeTorrent{have: make([]bool, 12)}, map[int]torrent.PiecePriority{}}
	w := newWant(s, l)
	w.ask(notes)
	for place, piece := range []int{5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4} {
		if notes.of[piece] != torrent.PiecePriorityNow || w.next(notes) {
			t.Errorf("piece %d has priority %d at place %d", piece, notes.of[piece], place)
		}
		ahead := 0
		for i, p := range notes.of {
			if p == torrent.PiecePriorityNext && !notes.have[i] {
				ahead++
			}
		}
		if want := min(3, 11-place); ahead != want {
			t.Errorf("%d pieces come next at place %d, want %d", ahead, place, want)
		}
		notes.have[piece] = true
		w.next(notes)
	}
	if !w.advance(notes) {
		t.Error("not done")
	}
}
