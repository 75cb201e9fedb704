package storage

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/anacrolix/torrent/metainfo"
)

// What a crafted torrent may ask for is refused before anything is made of it.
func TestLayoutBounds(t *testing.T) {
	files := func(paths ...string) (out []metainfo.FileInfo) {
		for _, p := range paths {
			out = append(out, metainfo.FileInfo{Length: 1, Path: strings.Split(p, "/")})
		}
		return out
	}
	var deep []string
	for i := range maxDirs/32 + 1 {
		deep = append(deep, fmt.Sprint(i)+strings.Repeat("/d", 32))
	}
	dirs := metainfo.Info{Name: "a", PieceLength: 1 << 20, Files: files(deep...), Pieces: make([]byte, 20)}
	for _, c := range []struct {
		name string
		info metainfo.Info
		want string
	}{
		{"directories", dirs, "directories that are accepted"},
		{"one byte", metainfo.Info{Name: "a", PieceLength: 1, Length: 1, Pieces: make([]byte, 20)}, ""},
		{"no files", metainfo.Info{Name: "a", PieceLength: 1}, ""},
		{"piece length 0", metainfo.Info{Name: "a", Length: 1, Pieces: make([]byte, 20)}, "piece length"},
		{"negative piece length", metainfo.Info{Name: "a", PieceLength: -1, Length: 1}, "piece length"},
		{"huge pieces", metainfo.Info{Name: "a", PieceLength: 1 << 40, Length: 1, Pieces: make([]byte, 20)}, "MiB that are accepted"},
		{"too few hashes", metainfo.Info{Name: "a", PieceLength: 1, Length: 2, Pieces: make([]byte, 20)}, "1 piece hashes for 2"},
		{"too many hashes", metainfo.Info{Name: "a", PieceLength: 1, Length: 1, Pieces: make([]byte, 40)}, "2 piece hashes for 1"},
		{"half a hash", metainfo.Info{Name: "a", PieceLength: 1, Length: 1, Pieces: make([]byte, 19)}, "list of piece hashes"},
		{"negative length", metainfo.Info{Name: "a", PieceLength: 1, Length: -1}, "makes no sense"},
		{"length over all bounds", metainfo.Info{Name: "a", PieceLength: 1 << 20, Length: 1 << 62}, "makes no sense"},
		{"sum that overflows", metainfo.Info{Name: "a", PieceLength: 1 << 20, Files: []metainfo.FileInfo{
			{Length: 1 << 44, Path: []string{"a"}}, {Length: 1<<63 - 1, Path: []string{"b"}}, {Length: 1<<63 - 1, Path: []string{"c"}},
		}}, "makes no sense"},
		{"up", metainfo.Info{Name: "..", PieceLength: 1, Length: 1, Pieces: make([]byte, 20)}, "leads out"},
		{"up inside", metainfo.Info{Name: "a", PieceLength: 4, Files: files("b/../c"), Pieces: make([]byte, 20)}, "leads out"},
		{"other system's separator", metainfo.Info{Name: `a\b`, PieceLength: 1, Length: 1, Pieces: make([]byte, 20)}, "separator"},
		{"NUL", metainfo.Info{Name: "a\x00b", PieceLength: 1, Length: 1, Pieces: make([]byte, 20)}, "NUL"},
		{"absolute", metainfo.Info{Name: "/etc", PieceLength: 1, Length: 1, Pieces: make([]byte, 20)}, "separator"},
		{"empty name", metainfo.Info{Name: "a", PieceLength: 4, Files: files("b//c"), Pieces: make([]byte, 20)}, "empty name"},
		{"long name", metainfo.Info{Name: strings.Repeat("x", 256), PieceLength: 1, Length: 1, Pieces: make([]byte, 20)}, "more than file systems take"},
		{"deep", metainfo.Info{Name: "a", PieceLength: 4, Files: files(strings.Repeat("d/", 70) + "f"), Pieces: make([]byte, 20)}, "parts"},
		{"long path", metainfo.Info{Name: "a", PieceLength: 4, Files: files(strings.Repeat(strings.Repeat("d", 100)+"/", 30) + "f"), Pieces: make([]byte, 20)}, "bytes long"},
		{"twice", metainfo.Info{Name: "a", PieceLength: 4, Files: files("b", "b"), Pieces: make([]byte, 20)}, "twice"},
		{"file and directory", metainfo.Info{Name: "a", PieceLength: 4, Files: files("b", "b/c"), Pieces: make([]byte, 20)}, "both a file and a directory"},
		{"directory and file", metainfo.Info{Name: "a", PieceLength: 4, Files: files("b/c", "b"), Pieces: make([]byte, 20)}, "twice"},
		{"the name of an incomplete one", metainfo.Info{Name: "a", PieceLength: 4, Files: files("b", "b.part"), Pieces: make([]byte, 20)}, "while it is not complete"},
		{"our own record", metainfo.Info{Name: ".Braid", PieceLength: 4, Files: files("record.db"), Pieces: make([]byte, 20)}, "own record"},
	} {
		_, err := NewLayout(&c.info)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

func TestManyFiles(t *testing.T)      { manyFiles(t, 2000) } // more than braid keeps open
func TestLargeManyFiles(t *testing.T) { manyFiles(t, 100_000) }

// Many files are laid out, written and verified like a few.
func manyFiles(t *testing.T, count int) {
	t.Helper()
	t.Parallel()
	lengths := make([]int64, count)
	for i := range lengths {
		lengths[i] = int64(i % 3) // a third of them empty
	}
	info, l, data := shape(t, 16<<10, lengths...)
	if len(l.Files) != count {
		t.Fatalf("%d files", len(l.Files))
	}
	dir := fastDir(t)
	hash := metainfo.Hash{1}
	s, err := Open(KindFile, dir, slog.New(slog.DiscardHandler), Options{})
	if err != nil {
		t.Fatal(err)
	}
	tor, err := s.OpenTorrent(t.Context(), info, hash)
	if err != nil {
		t.Fatal(err)
	}
	for p := range l.Pieces() {
		if err := writePiece(tor, info, data, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := tor.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Stored{Kind: KindFile, Dir: dir, Hash: hash, Layout: l}.Check(t.Context(), func(int64) {})
	if err != nil || !r.Complete() {
		t.Errorf("complete %v, %v", r.Complete(), err)
	}
}

// A symbolic link is no empty file, and padding is none at all. Each is told by its attributes (BEP
// 47).
func TestLayoutAttributes(t *testing.T) {
	attr := func(path, attr string, length int64) metainfo.FileInfo {
		return metainfo.FileInfo{Path: []string{path}, Length: length, ExtendedFileAttrs: metainfo.ExtendedFileAttrs{Attr: attr}}
	}
	info := metainfo.Info{Name: "n", PieceLength: 16, Pieces: make([]byte, 40), Files: []metainfo.FileInfo{
		attr("a", "x", 5), attr("pad", "p", 11), attr("link", "l", 0), attr("empty", "h", 0), attr("data", "l", 7), attr("pad", "p", 9),
	}}
	l, err := NewLayout(&info)
	if err != nil {
		t.Fatal(err)
	}
	want := []File{{"n/a", 5, 0}, {"n/empty", 0, 16}, {"n/data", 7, 16}}
	if !slices.Equal(l.Files, want) || !slices.Equal(l.Symlinks, []string{"n/link"}) || l.Length != 32 {
		t.Errorf("files %v, links %v, %d bytes; want %v, n/link, 32", l.Files, l.Symlinks, l.Length, want)
	}
	info.Files[2].Path[0] = ".."
	if _, err := NewLayout(&info); err == nil {
		t.Error("a link outside of the directory was accepted")
	}
}

// Between files is padding, behind the last one as well.
func TestSpan(t *testing.T) {
	l := Layout{Length: 40, Files: []File{
		{Path: "empty"}, {Path: "a", Length: 5}, {Path: "b", Offset: 16, Length: 4}, {Path: "none", Offset: 20}, {Path: "c", Offset: 20, Length: 4},
	}}
	for at, want := range map[int64]string{0: "a", 4: "a", 5: "", 15: "", 16: "b", 19: "b", 20: "c", 23: "c", 24: "", 39: ""} {
		got := ""
		err := l.Span(at, 1, func(i int, _ int64, _, _ int) error {
			got += l.Files[i].Path
			return nil
		})
		if err != nil || got != want {
			t.Errorf("%d: %q, %v; want %q", at, got, err, want)
		}
	}
}
