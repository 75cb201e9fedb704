package client

import (
	"bufio"
	"crypto/sha1"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/anacrolix/torrent/bencode"
	"github.com/anacrolix/torrent/metainfo"
	pp "github.com/anacrolix/torrent/peer_protocol"

	"braid/storage"
)

// root stands for the root of a file's hashes, which nobody here looks at.
var root = strings.Repeat("r", 32)

// hybridOf makes a hybrid of files of zeros with pieces of 16 KiB, in the order in which they are
// given.
func hybridOf(files ...storage.File) metainfo.Info {
	info := metainfo.Info{Name: "n", PieceLength: 16384, MetaVersion: 2}
	tree := metainfo.FileTree{Dir: map[string]metainfo.FileTree{}}
	var total int64
	for _, f := range files {
		if pad := -total & 16383; pad > 0 && f.Length > 0 {
			info.Files = append(info.Files, metainfo.FileInfo{
				Length: pad, Path: []string{".pad", fmt.Sprint(pad)}, ExtendedFileAttrs: metainfo.ExtendedFileAttrs{Attr: "p"},
			})
			total += pad
		}
		parts := strings.Split(f.Path, "/")
		info.Files = append(info.Files, metainfo.FileInfo{Length: f.Length, Path: parts})
		total += f.Length
		leaf := metainfo.FileTree{File: metainfo.FileTreeFile{Length: f.Length}}
		if f.Length > 0 {
			leaf.File.PiecesRoot = root
		}
		dir := tree
		for _, p := range parts[:len(parts)-1] {
			if _, ok := dir.Dir[p]; !ok {
				dir.Dir[p] = metainfo.FileTree{Dir: map[string]metainfo.FileTree{}}
			}
			dir = dir.Dir[p]
		}
		dir.Dir[parts[len(parts)-1]] = leaf
	}
	info.FileTree = tree
	info.Pieces = zeroPieces(total)
	return info
}

func zeroPieces(total int64) (hashes []byte) {
	for ; total > 0; total -= 16384 {
		sum := sha1.Sum(make([]byte, min(total, 16384)))
		hashes = append(hashes, sum[:]...)
	}
	return hashes
}

// single is a hybrid of one file.
func single() metainfo.Info {
	info := hybridOf(storage.File{Path: "n", Length: 20_000})
	info.Files, info.Length = nil, 20_000
	return info
}

var twoAndNone = []storage.File{{Path: "a", Length: 20_000}, {Path: "b"}, {Path: "d/c", Length: 5}}

func TestHybridIsItsV1Half(t *testing.T) {
	tail := hybridOf(twoAndNone...)
	tail.Files = append(tail.Files, metainfo.FileInfo{Length: 16379, Path: []string{".pad", "x"}, ExtendedFileAttrs: metainfo.ExtendedFileAttrs{Attr: "p"}})
	tail.Pieces = zeroPieces(3 * 16384)
	for _, c := range []struct {
		name   string
		info   metainfo.Info
		files  string
		length int64
	}{
		{"several files", hybridOf(twoAndNone...), "n/a 20000 at 0, n/b 0 at 20000, n/d/c 5 at 32768", 2*16384 + 5},
		{"padding behind the last", tail, "n/a 20000 at 0, n/b 0 at 20000, n/d/c 5 at 32768", 3 * 16384},
		{"one file", single(), "n 20000 at 0", 20_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := ParseTorrent(torrentOf(t, c.info))
			if err != nil {
				t.Fatal(err)
			}
			var files []string
			for _, f := range s.Layout.Files {
				files = append(files, fmt.Sprintf("%s %d at %d", f.Path, f.Length, f.Offset))
			}
			if got := strings.Join(files, ", "); got != c.files || s.Layout.Length != c.length {
				t.Errorf("%s, %d bytes in all; want %s, %d", got, s.Layout.Length, c.files, c.length)
			}
			if s.Info.HasV2() {
				t.Error("the v2 half is still there")
			}
			b, _ := bencode.Marshal(&c.info)
			if s.InfoHash != metainfo.HashBytes(b) {
				t.Error("the info hash is not that of the dictionary as it came")
			}
		})
	}
}

func TestHalvesThatDisagree(t *testing.T) {
	change := func(f func(*metainfo.Info)) metainfo.Info {
		info := hybridOf(twoAndNone...)
		f(&info)
		return info
	}
	tree := func(name string, length int64, root string) func(*metainfo.Info) {
		return func(i *metainfo.Info) {
			i.FileTree.Dir[name] = metainfo.FileTree{File: metainfo.FileTreeFile{Length: length, PiecesRoot: root}}
		}
	}
	for _, c := range []struct {
		name string
		info metainfo.Info
		want string
	}{
		{"length", change(tree("a", 20_001, root)), "20000 bytes in the v1 half, 20001 in the v2"},
		{"huge length", change(tree("a", 1<<62, root)), "20000 bytes in the v1 half"},
		{"negative length", change(tree("b", -1, "")), "negative"},
		{"no root", change(tree("a", 20_000, "")), "pieces root"},
		{"short root", change(tree("a", 20_000, "r")), "pieces root"},
		{"name", change(func(i *metainfo.Info) { i.Files[1].Path = []string{"x"} }), `["x"] in the v1 half is ["b"]`},
		{"missing in v1", change(tree("x", 5, root)), `["x"] is in the v2 half only`},
		{"missing in v2", change(func(i *metainfo.Info) { delete(i.FileTree.Dir, "d") }), `["d" "c"] is in the v1 half only`},
		{"order", hybridOf(twoAndNone[2], twoAndNone[1], twoAndNone[0]), "in the v1 half is"},
		{"no padding", change(func(i *metainfo.Info) { i.Files[2].Length-- }), "does not begin with a piece"},
		{"padding of a piece", change(func(i *metainfo.Info) {
			i.Files = append(i.Files, metainfo.FileInfo{Length: 3 * 16384, ExtendedFileAttrs: metainfo.ExtendedFileAttrs{Attr: "p"}})
			i.Pieces = zeroPieces(5*16384 + 5)
		}), "number of pieces"},
		{"piece length", change(func(i *metainfo.Info) { i.PieceLength, i.Pieces = 20_000, make([]byte, 40) }), "power of two"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ParseTorrent(torrentOf(t, c.info)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	v2 := hybridOf(twoAndNone...)
	v2.Files, v2.Pieces = nil, nil
	if _, err := ParseTorrent(torrentOf(t, v2)); err == nil || !strings.Contains(err.Error(), "v2 only") {
		t.Errorf("v2 only: %v", err)
	}
}

// Two hybrids in one session, by file and by magnet link. The engine panicked on the empty file,
// and stayed locked.
func TestHybridTransfer(t *testing.T) {
	data, out := t.TempDir(), t.TempDir()
	for _, f := range twoAndNone {
		name := filepath.Join(data, "n", filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, make([]byte, f.Length), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	src, err := ParseTorrent(torrentOf(t, hybridOf(twoAndNone...)))
	if err != nil {
		t.Fatal(err)
	}
	seeder := seed(t, src, data)
	magnet, err := ParseMagnet(src.Magnet())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Source{src, magnet} {
		store := openStore(t, out)
		tr, err := openSession(t, Config{}).Add(s, store, Options{Peers: seeder.Listening()})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, tr)
		tr.Close()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		sameFiles(t, src, data, out)
		if _, err := os.Stat(filepath.Join(out, "n", ".pad")); err == nil {
			t.Error("padding was written to disk")
		}
		out = t.TempDir()
	}
	// Peers that come with the v2 hash are not served: that is another protocol.
	info := hybridOf(twoAndNone...)
	b, _ := bencode.Marshal(&info)
	v2 := sha256.Sum256(b)
	for _, c := range []struct {
		name string
		hash [20]byte
		want bool
	}{{"v1", src.InfoHash, true}, {"v2", [20]byte(v2[:20]), false}} {
		conn, err := net.Dial("tcp", seeder.Listening()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(append([]byte(protocolName+"\x00\x00\x00\x00\x00\x00\x00\x14"), append(c.hash[:], []byte("-XX0001-............")...)...)); err != nil {
			t.Fatal(err)
		}
		var m pp.Message
		answer := make([]byte, handshakeSize)
		r := bufio.NewReader(conn)
		d := pp.Decoder{R: r, MaxLength: 1 << 16}
		_, err = io.ReadFull(r, answer)
		if err == nil {
			err = d.Decode(&m)
		}
		if (err == nil) != c.want {
			t.Errorf("with the %s hash: %v, %v", c.name, m, err)
		}
		if answer[len(protocolName)+7]&0x10 != 0 {
			t.Error("the seeder offers v2")
		}
	}
}

// makeHybrid makes a hybrid, and prints its v2 info hash: what it is of, the .torrent file.
const makeHybrid = `
import libtorrent as lt, os, sys
files = lt.file_storage()
lt.add_files(files, sys.argv[1])
torrent = lt.create_torrent(files, 16384)
lt.set_piece_hashes(torrent, os.path.dirname(sys.argv[1]))
open(sys.argv[2], 'wb').write(lt.bencode(torrent.generate()))
print(lt.torrent_info(sys.argv[2]).info_hashes().v2)
`

func TestHybridsOfLibtorrent(t *testing.T) {
	t.Parallel()
	f := foreigners[1]
	f.need(t)
	for _, name := range []string{"set", "file"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			if name == "set" {
				randomFiles(t, data, "set", 100_000, 0, 70_001, 0, 1)
			} else {
				writeRandom(t, filepath.Join(data, "file"), 100_001)
			}
			torrent := filepath.Join(t.TempDir(), name+".torrent")
			v2, err := exec.Command(systemPython, "-c", makeHybrid, filepath.Join(data, name), torrent).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, v2)
			}
			src, err := OpenSource(t.Context(), torrent)
			if err != nil {
				t.Fatal(err)
			}
			if src.HashV2 != strings.TrimSpace(string(v2)) {
				t.Errorf("v2 info hash %s, libtorrent says %s", src.HashV2, v2)
			}
			if r, err := inFiles(src, data).Check(t.Context(), nil); err != nil || !r.Complete() {
				t.Fatalf("libtorrent's own data: %+v, %v", r, err)
			}
			port := freePort(t)
			f.seed(t, torrent, data, port)
			peer := mustPeer(t, "127.0.0.1:"+strconv.Itoa(port))
			// The magnet link of a hybrid has both hashes (BEP 52).
			magnet, err := ParseMagnet(src.Magnet())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []Source{src, magnet} {
				out := t.TempDir()
				store := openStore(t, out)
				tr, err := openSession(t, Config{}).Add(s, store, Options{Peers: []Peer{peer}})
				if err != nil {
					t.Fatal(err)
				}
				wait(t, tr)
				tr.Close()
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				sameFiles(t, src, data, out)
				if r, err := inFiles(src, out).Check(t.Context(), nil); err != nil || !r.Complete() {
					t.Errorf("%+v, %v", r, err)
				}
			}
			out := t.TempDir()
			f.fetch(t, torrent, out, freePort(t), seed(t, src, data).Listening()[0].String())
			sameFiles(t, src, data, out)
		})
	}
}
