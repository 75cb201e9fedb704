package client

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/bencode"
	"github.com/anacrolix/torrent/metainfo"

	"braid/storage"
)

func torrentOf(t testing.TB, info metainfo.Info) []byte {
	b, err := bencode.Marshal(&info) // a file tree is written through its pointer only
	if err != nil {
		t.Fatal(err)
	}
	b, err = bencode.Marshal(metainfo.MetaInfo{InfoBytes: b})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseTorrentRefuses(t *testing.T) {
	hash := strings.Repeat("x", 20)
	file := func(path ...string) metainfo.Info {
		return metainfo.Info{Name: "n", PieceLength: 16384, Pieces: []byte(hash), Files: []metainfo.FileInfo{{Length: 5, Path: path}}}
	}
	two := file("a")
	two.Files = append(two.Files, two.Files[0])
	dirAndFile := file("a")
	dirAndFile.Files = append(dirAndFile.Files, metainfo.FileInfo{Length: 5, Path: []string{"a", "b"}})
	for _, c := range []struct {
		name string
		info metainfo.Info
		want string
	}{
		{"parent", file("..", "x"), "leads out"},
		{"self", file("."), "leads out"},
		{"empty", file("a", ""), "empty name"},
		{"slash", file("a/../../b"), "separator"},
		{"backslash", file(`..\b`), "separator"},
		{"nul", file("a\x00b"), "separator"},
		{"long", file(strings.Repeat("a", 300)), "bytes long"},
		{"deep", file(strings.Split(strings.Repeat("a", 100), "")...), "parts"},
		{"twice", two, "twice"},
		{"both", dirAndFile, "both"},
		{"name", metainfo.Info{Name: "../n", PieceLength: 16384, Pieces: []byte(hash), Length: 5}, "separator"},
		{"absolute", metainfo.Info{Name: "/etc", PieceLength: 16384, Pieces: []byte(hash), Length: 5}, "separator"},
		{"record", metainfo.Info{Name: ".braid", PieceLength: 16384, Pieces: []byte(hash), Length: 5}, "kept"},
		{"hashes", metainfo.Info{Name: "n", PieceLength: 16384, Pieces: []byte(hash), Length: 50_000}, "piece hashes"},
		{"negative", metainfo.Info{Name: "n", PieceLength: 16384, Pieces: []byte(hash), Length: -1}, "no sense"},
		{"no pieces", metainfo.Info{Name: "n", Pieces: []byte(hash), Length: 5}, "malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ParseTorrent(torrentOf(t, c.info)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := ParseTorrent([]byte("d4:infoi5ee")); err == nil {
		t.Error("a number passes for an info dictionary")
	}
	big := filepath.Join(t.TempDir(), "big.torrent")
	if err := os.WriteFile(big, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, MaxTorrentFile+2); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSource(t.Context(), big); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("a file beyond the limit: %v", err)
	}
}

func TestMagnetPeers(t *testing.T) {
	const hash = "magnet:?xt=urn:btih:8052a590f3ec326c0a7a1dcd50803e1e52cc77ff"
	for _, c := range []struct{ link, want string }{
		{hash + "&x.pe=127.0.0.1:7", "127.0.0.1:7"},
		{hash + "&x.pe=1-ff00:0:111,[127.0.0.1]:7", "1-ff00:0:111,[127.0.0.1]:7"},
		{hash + "&x.pe=%5B1-ff00:0:111,127.0.0.1%5D:7", "1-ff00:0:111,[127.0.0.1]:7"},
		{hash + "&x.pe=[::1]:7", "[::1]:7"},
	} {
		s, err := ParseMagnet(c.link)
		if err != nil || len(s.Peers) != 1 || s.Peers[0].String() != c.want {
			t.Errorf("%s: %v, %v", c.link, s.Peers, err)
			continue
		}
		again, err := ParseMagnet(s.Magnet(s.Peers...))
		if err != nil || len(again.Peers) != 1 || again.Peers[0] != s.Peers[0] || again.InfoHash != s.InfoHash {
			t.Errorf("%s comes back as %v, %v", c.link, again.Peers, err)
		}
	}
	v2 := strings.Repeat("ab", 32) // of a hybrid
	hybrid, err := ParseMagnet(hash + "&xt=urn:btmh:1220" + v2)
	if err == nil {
		hybrid, err = ParseMagnet(hybrid.Magnet())
	}
	if err != nil || hybrid.HashV2 != v2 {
		t.Errorf("the v2 hash %s comes back as %q, %v", v2, hybrid.HashV2, err)
	}
	small := "magnet:?dn=x&xt=urn:btih:qbjkleht5qzgyct2dxgvbab6dzjmy577" // the same hash in base32
	if s, err := ParseMagnet(small); err != nil || !strings.HasSuffix(hash, s.InfoHash.HexString()) {
		t.Errorf("%s is %s, %v", small, s.InfoHash, err)
	}
	if _, err := ParseMagnet("magnet:?xt=urn:btmh:1220" + strings.Repeat("ab", 32)); err == nil || !strings.Contains(err.Error(), "v2 only") {
		t.Errorf("a link to a v2 torrent: %v", err)
	}
	for _, bad := range []string{"", "magnet:?", hash + "&x.pe=nonsense", hash + "&x.pe=1.2.3.4:0", hash + "&dn=" + strings.Repeat("x", maxMagnet)} {
		if s, err := ParseMagnet(bad); err == nil {
			t.Errorf("%.60q was accepted as %+v", bad, s)
		}
	}
}

func FuzzParseTorrent(f *testing.F) {
	f.Add(torrentOf(f, metainfo.Info{Name: "n", PieceLength: 16384, Pieces: make([]byte, 20), Length: 5}))
	f.Add(torrentOf(f, metainfo.Info{Name: "n", PieceLength: 16384, Pieces: make([]byte, 40), Files: []metainfo.FileInfo{
		{Length: 5, Path: []string{"a", "b"}}, {Length: 20_000, Path: []string{"a", "c"}},
	}}))
	f.Add([]byte("d4:infod6:lengthi5e4:name1:n12:piece lengthi16384e6:pieces20:xxxxxxxxxxxxxxxxxxxxee"))
	f.Add([]byte("d4:infod9:file treed1:ad0:d6:lengthi1eeee12:meta versioni2e4:name1:n12:piece lengthi16384eee"))
	f.Add(torrentOf(f, hybridOf(twoAndNone...)))
	f.Add(torrentOf(f, single()))
	f.Add([]byte("d13:announce-listll1:a1:bee4:infod5:filesld4:attr1:l6:lengthi0e4:pathl1:aeee4:name1:n12:piece lengthi16384e6:pieces0:ee"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseTorrent(b)
		if err != nil {
			return
		}
		root := filepath.Join(string(filepath.Separator), "target")
		var sum int64
		for _, file := range s.Layout.Files {
			name := filepath.Join(root, filepath.FromSlash(file.Path))
			if !strings.HasPrefix(name, root+string(filepath.Separator)) {
				t.Errorf("%q leads to %q", file.Path, name)
			}
			sum += file.Length
		}
		if sum > s.Layout.Length {
			t.Errorf("files of %d bytes in a torrent of %d", sum, s.Layout.Length)
		}
		if s.Info.HasV2() || len(slices.Concat(s.Trackers...)) > maxTrackers {
			t.Errorf("v2 %v, %d trackers", s.Info.HasV2(), len(slices.Concat(s.Trackers...)))
		}
		showEngine(t, s)
	})
}

// showEngine has the engine take a torrent as a transfer does. It may refuse it, but not panic, and
// sees one file.
func showEngine(t *testing.T, s Source) {
	if s.Layout.Pieces() > 1000 {
		return // in the interest of speed
	}
	c := engineConfig(slog.New(slog.DiscardHandler))
	cl, err := torrent.NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	tr, _ := cl.AddTorrentOpt(torrent.AddTorrentOpts{InfoHash: s.InfoHash, Storage: &oneFile{Store: storage.OpenVerified(t.TempDir(), c.Slogger)}})
	if err := tr.SetInfoBytes(s.infoBytes); err != nil {
		return
	}
	if info := tr.Info(); info.HasV2() || len(tr.Files()) != 1 || tr.Length() != s.Layout.Length || tr.NumPieces() != s.Layout.Pieces() {
		t.Errorf("v2 %v, %d files, %d bytes, %d pieces", info.HasV2(), len(tr.Files()), tr.Length(), tr.NumPieces())
	}
}

func FuzzParseMagnet(f *testing.F) {
	f.Add("magnet:?xt=urn:btih:8052a590f3ec326c0a7a1dcd50803e1e52cc77ff&dn=set&tr=http://t/announce&x.pe=1-ff00:0:111,[127.0.0.1]:7")
	f.Add("magnet:?xt=urn:btih:QBJKLEHT5QZGYCT2DXGVBAB6DZJMY577")
	f.Fuzz(func(t *testing.T, link string) {
		s, err := ParseMagnet(link)
		if err != nil {
			return
		}
		if len(s.Peers) > MaxPeers || len(s.Trackers) > maxTrackers {
			t.Errorf("%d peers, %d trackers", len(s.Peers), len(s.Trackers))
		}
		if again, err := ParseMagnet(s.Magnet(s.Peers...)); err == nil && again.InfoHash != s.InfoHash {
			t.Errorf("the hash changed from %s to %s", s.InfoHash, again.InfoHash)
		}
	})
}

func FuzzParsePeer(f *testing.F) {
	for _, s := range []string{"127.0.0.1:7", "[::1]:7", "host.example:80", "1-ff00:0:111,[127.0.0.1]:7", "[1-ff00:0:111,::1]:7", ":7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePeer(s)
		if err != nil {
			return
		}
		q, err := ParsePeer(p.String())
		if err != nil || p != q {
			t.Errorf("%q gives %q, which gives %v, %v", s, p, q, err)
		}
		if !engineAddrOf(p).Is6() || engineAddrOf(p).As16()[0] != 0xfd {
			t.Errorf("%q has the engine address %s", s, engineAddrOf(p))
		}
	})
}
