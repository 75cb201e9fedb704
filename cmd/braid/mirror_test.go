package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/client"
	"braid/commands/program"
	"braid/node/event"
)

// braid mirror copies a feed once, as cron does it, and goes on with a directory until it is
// interrupted.
func TestMirrorCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := randomFile(t, dir, 31, 1<<20)
	if err := os.Mkdir(filepath.Join(dir, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	must(t, dir, "create", "file", "-o", "in/set.torrent")
	s := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(dir, "in"))))
	t.Cleanup(s.Close)
	feed := `<rss><channel><item><title>The set</title><link>set.torrent</link></item><item><title>lost</title><link>lost.torrent</link></item></channel></rss>`
	if err := os.WriteFile(filepath.Join(dir, "in/feed.xml"), []byte(feed), 0o600); err != nil {
		t.Fatal(err)
	}
	peer := ready(t, dir, "seed", "in/set.torrent", "--json", "--transport", "tcp", "--listen", "127.0.0.1:0", "--dht", "off")[0]
	own := []string{"--transport", "tcp", "--dht", "off", "--peer", peer}
	once := append([]string{"mirror", s.URL + "/feed.xml", "-o", "out", "--once", "--exclude", "LOST", "--json"}, own...)
	if got := must(t, dir, once...); !strings.Contains(got, `"action":"added","torrent":"file"`) || !strings.Contains(got, `"event":"done"`) {
		t.Errorf("%s", got)
	}
	has(t, filepath.Join(dir, "out/file"), data)
	if got := must(t, dir, once...); strings.Contains(got, "added") || !strings.Contains(got, "the list has not changed") || !strings.Contains(got, `"fetched_bytes":0,"payload_mbit_s":0,`) {
		t.Errorf("once more: %s", got)
	}
	all := append([]string{"mirror", s.URL + "/feed.xml", "-o", "all", "--once"}, own...)
	for range 2 {
		if code, got, said := ends(t, dir, all...); code != program.Failed || !strings.Contains(got, "failed: lost") || !strings.Contains(said, "1 of the offers failed") {
			t.Errorf("with an offer that is not there: exit code %d: %s%s", code, got, said)
		}
	}
	has(t, filepath.Join(dir, "all/file"), data)
	small := must(t, dir, append([]string{"mirror", "in", "-o", "small", "--once", "--max-size", "1000000B"}, own...)...)
	if !strings.Contains(small, "left-out: file, 1 MiB: it has 1.0 MiB, and 977 KiB are allowed for one torrent\n") {
		t.Errorf("%s", small)
	}

	code, got, said := ends(t, dir, "mirror", "in", "-o", "lonely", "--once", "--stop-timeout", "1s", "--transport", "tcp", "--dht", "off")
	if code != program.Failed || !strings.Contains(got, "failed: file: no progress for 1s: ") || !strings.Contains(said, "file: no progress for 1s: ") {
		t.Errorf("without a peer: exit code %d: %s%s", code, got, said)
	}
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "taken"), 0o700), os.WriteFile(filepath.Join(dir, "taken/file"), []byte("foreign"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		code, _, said = ends(t, dir, append([]string{"mirror", "in", "-o", "taken", "--once"}, own...)...)
		if code != program.Failed || !strings.Contains(said, "file: download file: ") {
			t.Errorf("with a foreign file: exit code %d: %s", code, said)
		}
	}

	cmd := braid(t, dir, append([]string{"mirror", "in", "-o", "live", "--json"}, own...)...)
	events, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(events); lines.Scan(); {
		var e event.Done
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Errorf("%s: %v", lines.Text(), err)
		}
		if e.Event == "done" {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("an interrupt: %v", err)
	}
	has(t, filepath.Join(dir, "live/file"), data)

	for args, want := range map[string]string{
		"mirror":                          "name one feed",
		"mirror none":                     "none: no such file",
		"mirror in --interval 1s":         "at least 10s",
		"mirror in --include [":           `pattern "["`,
		"mirror in --downloads 0":         "at least 1",
		"mirror scion://nowhere:x/f.xml":  `port "x"`,
		"mirror in --overwrite --rename":  "leave one",
		"mirror in --stop-timeout 0s":     "more than 0",
		"mirror http:///feed.xml":         "is not a URL",
		"mirror http://127.0.0.1:1 other": "name one feed",
	} {
		if code, _, said := ends(t, dir, strings.Fields(args)...); code != program.Usage || !strings.Contains(said, want) {
			t.Errorf("braid %s: exit code %d: %s", args, code, said)
		}
	}
	if code, _, said := ends(t, dir, "mirror", "http://127.0.0.1:1/feed", "--once", "--transport", "tcp"); code != program.Failed || !strings.Contains(said, "127.0.0.1:1") {
		t.Errorf("nobody answers: exit code %d: %s", code, said)
	}
}

// A feed on SCION, its torrents and their data come over SCION.
func TestMirrorOverSCION(t *testing.T) {
	t.Parallel()
	n, from, to := startNetwork(t, "two-paths")
	dir := t.TempDir()
	data := randomFile(t, dir, 32, 1<<20)
	if err := os.Mkdir(filepath.Join(dir, "site"), 0o700); err != nil {
		t.Fatal(err)
	}
	must(t, dir, "create", "file", "-o", "site/set.torrent")
	if err := os.WriteFile(filepath.Join(dir, "site/feed.xml"), []byte(`<rss><channel><item><title>set</title><link>set.torrent</link></item></channel></rss>`), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, dir, "create", "site", "-o", "site.torrent")
	site, err := client.OpenSource(t.Context(), filepath.Join(dir, "site.torrent"))
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("%s,[%s]", from, n.HostIP(from))
	e := readyEvent(t, dir, "serve", "site.torrent", "site/set.torrent", "--json", "--config-dir", n.ConfigDir(from), "--http", at+":0", "--listen", at+":0", "--dht", "off")
	got := must(t, dir, "mirror", "scion://"+e.HTTP[0]+"/torrent/"+site.InfoHash.HexString()+"/site/feed.xml", "-o", "out", "--once", "--json",
		"--transport", "scion", "--config-dir", n.ConfigDir(to), "--local", n.HostIP(to).String(), "--peer", e.Listen[0], "--dht", "off")
	has(t, filepath.Join(dir, "out/file"), data)
	if !strings.Contains(got, `"transport":"scion"`) {
		t.Errorf("%s", got)
	}
}
