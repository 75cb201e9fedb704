package client

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The info hashes are those that mktorrent 1.1 and transmission-create 3.00 give to the same data:
//
//	mktorrent -l 16 -p -s SRC -n other -a … d
//	transmission-create -p -s 64 -t … d
func TestCreateLikeOthers(t *testing.T) {
	root := filepath.Join(t.TempDir(), "d")
	for name, text := range map[string]string{
		"a.bin": strings.Repeat("braid\n", 50_000), "sub/b.txt": "hi\n", "z.log": "x\n",
		"sub/c.tmp": "left out", "draft/e.txt": "left out", "sub/draft/f.txt": "left out", "sub/x/y.txt": "left out",
	} {
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tiers := [][]string{{"http://a.example/announce", "http://b.example/announce"}, {"http://c.example/announce"}}
	for _, c := range []struct {
		opts CreateOptions
		hash string
	}{
		{CreateOptions{Private: true, Source: "SRC", Name: "other"}, "834ff4a48babd1ea0d91c424e110acff6bfc5c51"},
		{CreateOptions{Private: true}, "4ae08ca7e90b4702461f542846107c4747c3b4ac"},
	} {
		c.opts.PieceLength, c.opts.Trackers, c.opts.WebSeeds = 64<<10, tiers, []string{"http://w.example/d/"}
		c.opts.Exclude = []string{"*.tmp", "draft", "sub/x"}
		s := makeTorrent(t, root, c.opts).Source
		if s.InfoHash.HexString() != c.hash {
			t.Errorf("info hash %s, want %s", s.InfoHash.HexString(), c.hash)
		}
		if !slices.EqualFunc(s.Trackers, tiers, slices.Equal) || !slices.Equal(s.WebSeeds, c.opts.WebSeeds) || s.Info.Source != c.opts.Source {
			t.Errorf("the torrent has trackers %v, web seeds %v, source %q", s.Trackers, s.WebSeeds, s.Info.Source)
		}
	}
	if _, err := Create(t.Context(), root, CreateOptions{Name: "../up"}); err == nil {
		t.Error("a name that leads out is accepted")
	}
	link := root + "-link"
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), link, CreateOptions{}); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link to a directory: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(file, []byte("data"), 0o600), os.Symlink(file, root+"-file")); err != nil {
		t.Fatal(err)
	}
	if s := makeTorrent(t, root+"-file", CreateOptions{}).Source; s.Info.Name != filepath.Base(root)+"-file" {
		t.Errorf("a link to a file gives %q", s.Info.Name)
	}
}

// Pieces shorter than a block are for those who ask for them.
func TestShortPieces(t *testing.T) {
	for _, tt := range []struct {
		length       int64
		usual, short bool
	}{{0, true, true}, {16 << 10, true, true}, {20_000, false, false}, {8 << 10, false, true}, {1000, false, true}, {-1, false, false}} {
		usual, short := CreateOptions{PieceLength: tt.length}, CreateOptions{PieceLength: tt.length, ShortPieces: true}
		if (usual.Check() == nil) != tt.usual || (short.Check() == nil) != tt.short {
			t.Errorf("%d bytes: %v; with short pieces %v", tt.length, usual.Check(), short.Check())
		}
	}
}

// No torrent is made of data that changes while it is hashed.
func TestCreateWhileChanging(t *testing.T) {
	for what, change := range map[string]func(file string) error{
		"more data": func(file string) error { return os.WriteFile(file, make([]byte, 2000), 0o600) },
		"other data": func(file string) error {
			return errors.Join(os.WriteFile(file, make([]byte, 1000), 0o600), os.Chtimes(file, time.Time{}, time.Unix(1, 0)))
		},
		"another file": func(file string) error { return os.WriteFile(file+"2", nil, 0o600) },
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
		inFile := what != "another file"
		for root, isChange := range map[string]bool{file: inFile, link: inFile, dir: true} {
			if err := errors.Join(os.RemoveAll(file+"2"), os.WriteFile(file, make([]byte, 1000), 0o600)); err != nil {
				t.Fatal(err)
			}
			_, err := Create(t.Context(), root, CreateOptions{Progress: func(int64, int64) {
				if err := change(file); err != nil {
					t.Error(err)
				}
			}})
			if errors.Is(err, ErrChanging) != isChange {
				t.Errorf("%s, and a torrent of %s: %v", what, root, err)
			}
		}
	}
}

// What other programs write and read is read.
func TestForgivenTorrents(t *testing.T) {
	const info = "4:infod6:lengthi5e4:name1:n12:piece lengthi16384e6:pieces20:xxxxxxxxxxxxxxxxxxxxe"
	for text, webSeeds := range map[string]int{
		"d" + info + "e\n":                                                       0,
		"d" + info + "e\r\n":                                                     0,
		"d" + info + "8:url-listi0ee":                                            0,
		"d" + info + "8:url-list0:e":                                             0,
		"d" + info + "8:url-list10:http://w/ae":                                  1,
		"d" + info + "8:url-listl10:http://w/ai7e0:lee10:":                       -1,
		"d" + info + "8:url-listl10:http://w/ai7e0:leee":                         1,
		"d9:httpseedsl10:http://w/ae" + info + "e":                               1,
		"d" + info + "e\n\nx":                                                    -1,
		"d8:url-listl" + strings.Repeat("1:x", maxWebSeeds+1) + "e" + info + "e": -1,
	} {
		s, err := ParseTorrent([]byte(text))
		if (err != nil) != (webSeeds < 0) || err == nil && len(s.WebSeeds) != webSeeds {
			t.Errorf("%.150q: %d web seeds, %v; want %d", text, len(s.WebSeeds), err, webSeeds)
		}
	}
	hash, v2 := strings.Repeat("ab", 20), strings.Repeat("cd", 32)
	s, err := ParseMagnet("magnet:?xt.1=urn:btih:" + hash + "&xt.2=urn:btmh:1220" + v2 + "&tr.1=http://a/announce&tr=http://b/announce&ws=http://w/")
	if err != nil || s.InfoHash.HexString() != hash || s.HashV2 != v2 || len(s.Trackers) != 2 || len(s.WebSeeds) != 1 {
		t.Errorf("a magnet link with numbered parameters: %+v, %v", s, err)
	}
}
