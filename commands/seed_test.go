package commands

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"braid/commands/program"
	"braid/units/await"
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
		"torrents --data out2":          {program.Data, "none of the torrents is complete"},
		"set":                           {program.Usage, "no .torrent file in this directory"},
		"torrents/gone.TORRENT":         {program.Data, "gone in . is not complete"},
		"torrents torrents/set.TORRENT": {program.Usage, "named twice"},
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
	var info struct{ Magnet string }
	if err := json.Unmarshal([]byte(must(t, dir, "info", "set.torrent", "--json")), &info); err != nil {
		t.Fatal(err)
	}
	must(t, dir, "download", info.Magnet, "-o", "out", "--peer", first)
	second := startSeed(t, dir, info.Magnet, "--data", "out")
	must(t, dir, "download", "set.torrent", "-o", "again", "--peer", second)

	if code, _, said := ends(t, dir, "seed", info.Magnet, "--listen", "127.0.0.1:0"); code != program.Usage || !strings.Contains(said, "nobody to ask what is in the magnet link of set") {
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
	if code != program.Data || !strings.Contains(said, "set in . is not complete") {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// What a download keeps of a magnet link serves to verify, to export and to resume.
func TestKeptMagnet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fileSet(t, dir, "set", "a", "b")
	peer := startSeed(t, dir, "set.torrent")
	var info struct{ Magnet string }
	if err := json.Unmarshal([]byte(must(t, dir, "info", "set.torrent", "--json")), &info); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"verify", "export"} {
		if code, _, said := ends(t, dir, command, info.Magnet, "--data", "out"); code != program.Usage || !strings.Contains(said, "no download into out has kept") {
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

// A seed ends when it has sent enough, and a download that serves afterwards when its time is over.
// Trackers hear of it.
func TestSeedUntil(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	var stopped atomic.Int32
	tracker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("event") == "stopped" {
			stopped.Add(1)
		}
		_, _ = w.Write([]byte("d8:intervali1800e5:peers0:e"))
	}))
	defer tracker.Close()
	seed := seeding(t, dir, "file.torrent", "--ratio", "1", "--seed-time", "24h", "--tracker", tracker.URL+"/announce")
	peer := seed.ready(t)[0]
	code, _, said := ends(t, dir, "download", "file.torrent", "-o", "out", "--peer", peer, "--seed-time", "10ms")
	if code != 0 || !strings.Contains(said, "file: served for 10ms, 0 B sent; it is not served any longer") {
		t.Errorf("exit code %d: %s", code, said)
	}
	code = seed.wait(t)
	if events := seed.out.String(); code != 0 || !strings.Contains(events, `{"event":"served"`) || !strings.Contains(events, `"reason":"ratio 1.00 is reached"`) {
		t.Errorf("the seed: %d: %s", code, events)
	}
	await.True(t, "the goodbye to the tracker", func() bool { return stopped.Load() > 0 })
	if n := stopped.Load(); n != 1 {
		t.Errorf("the tracker was told %d times", n)
	}
	for _, args := range []string{"--ratio 0", "--ratio -1", "--ratio nan", "--ratio inf", "--seed-time 0s", "--seed-time -1s"} {
		for _, command := range []string{"seed file.torrent --listen 127.0.0.1:0 ", "download file.torrent --peer " + peer + " "} {
			if code, _, said := ends(t, dir, strings.Fields(command+args)...); code != program.Usage {
				t.Errorf("%s: exit code %d: %s", command+args, code, said)
			}
		}
	}
}

// A directory stands for the torrents in it, for downloads, too.
func TestDownloadOfADirectory(t *testing.T) {
	dir := t.TempDir()
	smallTorrent(t, dir)
	peer := smallSeed(t, dir)
	must(t, dir, "download", ".", "-o", "out", "--peer", peer)
	if _, err := os.Stat(filepath.Join(dir, "out", "file")); err != nil {
		t.Error(err)
	}
}
