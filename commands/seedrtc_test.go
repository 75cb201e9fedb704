package commands

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/commands/program"
)

// A seed for browsers alone listens nowhere: a tracker over WebSocket brings its peers.
func TestSeedForBrowsersOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := ready(t, dir, "tracker", "--json", "--listen", "ws://127.0.0.1:0")[0]
	data := randomFile(t, dir, 60, 1<<20)
	must(t, dir, "create", "--offline", "-o", "x.torrent", "file")
	rtc := []string{"x.torrent", "--transport", "webrtc", "--ice-local", "--dht", "off"}
	if code, _, said := ends(t, dir, append([]string{"seed"}, rtc...)...); code != program.Usage || !strings.Contains(said, "--tracker ws://HOST:PORT") {
		t.Errorf("a seed that nobody can reach: exit code %d: %s", code, said)
	}
	rtc = append(rtc, "--tracker", at)
	if listen := ready(t, dir, append([]string{"seed", "--json"}, rtc...)...); listen == nil || len(listen) > 0 {
		t.Errorf("listens on %q", listen)
	}
	must(t, dir, append([]string{"download", "-o", "got"}, rtc...)...)
	if got, err := os.ReadFile(filepath.Join(dir, "got", "file")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
