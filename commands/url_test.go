package commands

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"braid/commands/program"
)

// Every command that reads a torrent takes its URL, and no message shows the key in it.
func TestTorrentByURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	web := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer web.Close()
	url := web.URL + "/file.torrent?passkey=KEY"
	if text := must(t, dir, "info", url); !strings.Contains(text, "48.8 KiB") {
		t.Error(text)
	}
	must(t, dir, "verify", url)
	must(t, dir, "download", url, "-o", "out", "--peer", startSeed(t, dir, url))
	must(t, dir, "verify", url, "--data", "out")
	for _, command := range []string{"download", "seed", "verify", "info"} {
		code, _, said := ends(t, dir, command, web.URL+"/none?passkey=KEY")
		if code != program.Failed || !strings.Contains(said, "the server answers 404") || strings.Contains(said, "KEY") {
			t.Errorf("%s: exit code %d: %s", command, code, said)
		}
	}
}
