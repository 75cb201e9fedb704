package main

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A seed takes a directory of torrents, of which it serves those whose data is there.
func TestSeedDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	fileSet(t, dir, "set", "a", "b")
	fileSet(t, dir, "gone", "a")
	torrents := filepath.Join(dir, "torrents")
	if err := os.Mkdir(torrents, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "set", "gone"} {
		if err := os.Rename(filepath.Join(dir, name+".torrent"), filepath.Join(torrents, name+".TORRENT")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"broken.torrent", "other.txt"} {
		if err := os.WriteFile(filepath.Join(torrents, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	peer := startSeed(t, dir, "torrents")
	must(t, dir, "download", "torrents/file.TORRENT", "torrents/set.TORRENT", "-o", "out", "--peer", peer)
	if got := filesIn(t, filepath.Join(dir, "out/set")); got != "a b" {
		t.Errorf("downloaded: %s", got)
	}
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"torrents --data out2":          {exitData, "none of the 3 torrents is complete"},
		"set":                           {exitUsage, "no .torrent file in this directory"},
		"torrents/gone.TORRENT":         {exitData, "gone in . is not complete"},
		"torrents torrents/set.TORRENT": {exitUsage, "named twice"},
	} {
		code, _, said := ends(t, dir, append([]string{"seed", "--listen", "127.0.0.1:0"}, strings.Fields(args)...)...)
		if code != want.code || !strings.Contains(said, want.says) {
			t.Errorf("%s: exit code %d: %s", args, code, said)
		}
	}
}

// What a magnet link means is kept by its download, or else asked from peers.
func TestSeedMagnet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fileSet(t, dir, "set", "a", "b")
	first := startSeed(t, dir, "set.torrent")
	var info description
	if err := json.Unmarshal([]byte(must(t, dir, "info", "set.torrent", "--json")), &info); err != nil {
		t.Fatal(err)
	}
	must(t, dir, "download", info.Magnet, "-o", "out", "--peer", first)
	second := startSeed(t, dir, info.Magnet, "--data", "out")
	must(t, dir, "download", "set.torrent", "-o", "again", "--peer", second)

	if code, _, said := ends(t, dir, "seed", info.Magnet, "--listen", "127.0.0.1:0"); code != exitUsage || !strings.Contains(said, "nobody to ask what is in the magnet link of set") {
		t.Errorf("exit code %d: %s", code, said)
	}
	// The data is here, but braid has not downloaded it. A tracker knows somebody to ask.
	trackerURL := ready(t, dir, "tracker", "--listen", "http://127.0.0.1:0", "--json")[0]
	startSeed(t, dir, "set.torrent", "--tracker", trackerURL)
	third := startSeed(t, dir, info.Magnet+"&tr="+url.QueryEscape(trackerURL))
	must(t, dir, "download", "set.torrent", "-o", "third", "--peer", third)
	if err := os.RemoveAll(filepath.Join(dir, "set/b")); err != nil {
		t.Fatal(err)
	}
	code, _, said := ends(t, dir, "seed", info.Magnet, "--tracker", trackerURL, "--listen", "127.0.0.1:0")
	if code != exitData || !strings.Contains(said, "set in . is not complete") {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// What a download keeps of a magnet link serves to verify, to export and to resume.
func TestKeptMagnet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fileSet(t, dir, "set", "a", "b")
	peer := startSeed(t, dir, "set.torrent")
	var info description
	if err := json.Unmarshal([]byte(must(t, dir, "info", "set.torrent", "--json")), &info); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"verify", "export"} {
		if code, _, said := ends(t, dir, command, info.Magnet, "--data", "out"); code != exitUsage || !strings.Contains(said, "no download into out has kept") {
			t.Errorf("%s before the download: exit code %d: %s", command, code, said)
		}
	}
	must(t, dir, "download", info.Magnet, "-o", "out", "--storage", "bolt", "--peer", peer)
	if said := must(t, dir, "verify", info.Magnet, "--data", "out", "--storage", "bolt"); !strings.Contains(said, "set: all 2 files are right") {
		t.Error(said)
	}
	must(t, dir, "export", info.Magnet, "--data", "out", "-o", "exported")
	if got := filesIn(t, filepath.Join(dir, "exported/set")); got != "a b" {
		t.Errorf("exported: %s", got)
	}
	// Nobody answers at port 1: what is there is enough.
	if said := must(t, dir, "download", info.Magnet, "-o", "out", "--list", "--peer", "127.0.0.1:1"); !strings.Contains(said, "set/b") {
		t.Error(said)
	}
	must(t, dir, "download", info.Magnet, "-o", "out", "--storage", "bolt", "--peer", "127.0.0.1:1", "--stop-timeout", "20s")
}
