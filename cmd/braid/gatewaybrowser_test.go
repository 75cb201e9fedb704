package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"braid/node/web/page/webtorrent"
)

// webtorrent, in Node and in a browser, fetches what only a host on SCION has through a gateway,
// whose WebSocket tracker is the only one that it knows. Then it is the only one with the data, and
// a host on SCION fetches that from it.
func TestGatewayForBrowsers(t *testing.T) {
	t.Parallel()
	n, from, to := startNetwork(t, "two-paths")
	scion := ready(t, t.TempDir(), "tracker", "--json", "--min-interval", "1s", "--interval", "5s", "--config-dir", n.ConfigDir(from),
		"--listen", fmt.Sprintf("scion://%s,[%s]:0", from, n.HostIP(from)))[0]
	for name, start := range map[string]webtorrent.Start{
		"node": webtorrent.InNode, "chromium": webtorrent.InBrowser,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			at := "ws://127.0.0.1:" + freeTCP(t)
			onSCION := []string{"--transport", "scion", "--no-trackers", "--tracker", scion, "--dht", "off", "--config-dir", n.ConfigDir(from)}
			allow := func(names string) {
				if err := os.WriteFile(filepath.Join(dir, "collection"), []byte(names), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			randomFile(t, dir, 50, 1000)
			must(t, dir, "create", "file", "-o", "other.torrent", "--offline")
			data := randomFile(t, dir, 51, 2<<20)
			must(t, dir, "create", "file", "-o", "it.torrent", "--piece-length", "64KiB", "--tracker", at+"/announce", "--offline")
			torrent := filepath.Join(dir, "it.torrent")
			allow("it.torrent\nother.torrent\n")
			_, seed := started(t, dir, append([]string{"seed", torrent, "--json", "--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from))}, onSCION...)...)
			_, gate := started(t, dir, "gateway", "--collection", "collection", "--json", "-v", "--cache", "cache", "--tracker-listen", at,
				"--tracker", scion, "--interval", "5s", "--dht", "off", "--config-dir", n.ConfigDir(to), "--transport", "scion", "--transport", "webrtc",
				"--ice-local", "--listen", fmt.Sprintf("%s,[%s]:0", to, n.HostIP(to)))
			want := sha256.Sum256(data)
			if got := start(t, torrent)(); got != hex.EncodeToString(want[:]) {
				t.Fatalf("webtorrent has %s", got)
			}
			// Nobody has the data now but webtorrent: the gateway deletes what is not allowed.
			if err := seed.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			hangUp := func() {
				if err := gate.Process.Signal(syscall.SIGHUP); err != nil {
					t.Fatal(err)
				}
			}
			allow("other.torrent\n")
			hangUp()
			soon(t, "an empty cache", func() bool {
				left, _ := filepath.Glob(filepath.Join(dir, "cache", "*", "*"))
				return len(left) == 0
			})
			allow("it.torrent\nother.torrent\n")
			hangUp()
			out := t.TempDir()
			must(t, dir, append([]string{"download", torrent, "-o", out, "--json", "--local", n.HostIP(from).String()}, onSCION...)...)
			if got, err := os.ReadFile(filepath.Join(out, "file")); err != nil || !bytes.Equal(got, data) {
				t.Errorf("from webtorrent: %d bytes, %v", len(got), err)
			}
		})
	}
}
