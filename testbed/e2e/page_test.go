package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"braid/client"
	"braid/node"
	"braid/node/web"
	"braid/node/web/page/chromium"
	"braid/node/web/transmission"
	v1 "braid/node/web/v1"
	"braid/pathsel"
	"braid/scionnet"
	"braid/units/await"
)

// The web page shows a real download over a real network: what it says of each path is true, its
// map has the links of the network, and forbidding an interface on the map moves the download to
// the other paths.
func TestPage(t *testing.T) {
	t.Parallel()
	s := startSwarm(t, twoPaths(t), 96<<20)
	url, torrent := s.daemon(t)
	b := chromium.Open(t, false, "")
	hash := torrent.InfoHash()

	b.Show(url + "/#/torrent/" + hash)
	b.Until(`[...document.querySelectorAll(".path:not([hidden]) .badge")].filter(e => e.textContent === "active").length === 2`)
	b.Until(`[...document.querySelectorAll(".f-down dd")].filter(e => e.textContent.endsWith("Mbit/s")).length >= 2`)
	text := chromium.Get[string](b, `[...document.querySelectorAll(".path:not([hidden])")].map(p => p.innerText.replaceAll("\n", " ")).join("\n")`)
	for _, p := range torrent.Paths() {
		for _, i := range p.Path.Interfaces {
			if !strings.Contains(text, i.IA.String()) {
				t.Errorf("the page does not show %s of path %s:\n%s", i, p.Path.Fingerprint.Short(), text)
			}
		}
		// A measured bandwidth, if there is one already, has the unit for both.
		if !strings.Contains(text, fmt.Sprintf("%d B", p.Path.MTU)) || !regexp.MustCompile(`20\.0( Mbit/s)? announced`).MatchString(text) {
			t.Errorf("the page does not show the MTU %d and the announced 20 Mbit/s:\n%s", p.Path.MTU, text)
		}
	}
	b.Until(`document.querySelectorAll(".decision:not([hidden]) .why").length > 0 && document.querySelector(".decision .why").textContent !== ""`)
	b.Shot("live-paths")
	for _, view := range []struct{ tab, ready string }{
		{"overview", `/^[1-9]\d* of \d+ pieces verified/.test(document.querySelector(".overview .hint")?.textContent)`},
		{"files", `document.querySelector(".files-grid.row")?.textContent.startsWith("file")`},
		{"peers", `document.querySelector(".peers-grid.row")?.textContent.includes("1-ff00:0:110")`},
		{"trackers", `document.querySelector(".trackers-grid.head, .empty:not([hidden])")`},
		{"log", `document.querySelector(".log-grid.row, .empty:not([hidden])")`},
	} {
		b.Show(url + "/#/torrent/" + hash + "/" + view.tab)
		b.Until(view.ready)
		b.Shot("live-" + view.tab)
	}

	// Forbid one of the two links on the map, after a look at what remains.
	b.Show(url + "/#/map")
	b.Until(`document.querySelectorAll(".map .link").length === 2 && document.querySelectorAll(".map .port").length === 4`)
	b.Until(`[...document.querySelectorAll(".link-rate")].every(e => e.textContent.includes("Mbit/s"))`)
	b.Shot("live-map")
	// Limit it first: the map and the daemon's rates show the limit.
	b.Click(`.port .hit`)
	b.Until(`document.querySelector("dialog input[value=limit]")`)
	b.Click(`dialog input[value=limit]`)
	b.Until(`document.querySelector(".remaining summary")?.textContent.includes("2 of 2 paths remain") && !document.querySelector("dialog button.main").disabled`)
	b.Click(`dialog button.main`)
	b.Until(`document.querySelectorAll(".map .link.limited").length === 1`)
	b.Shot("live-limited")
	b.Click(`.port .hit`)
	b.Until(`document.querySelector("dialog input[value=limit]")?.checked`)
	port := chromium.Get[string](b, `document.querySelector("dialog h2").textContent`)
	b.Click(`dialog input[value=forbid]`)
	b.Until(`document.querySelector(".remaining summary")?.textContent.includes("1 of 2 paths remain")`)
	b.Click(`dialog button.main`)
	b.Until(`document.querySelectorAll(".map .link.forbidden").length === 1`)
	await.True(t, "nothing more over the forbidden interface "+port, func() bool {
		for _, p := range torrent.Paths() {
			for _, i := range p.Path.Interfaces {
				if i.String() == port && p.State.Open() {
					return false
				}
			}
		}
		return true
	})
	b.Show(url)
	b.Until(`document.querySelector(".torrents .row .badge")?.textContent === "downloading"`)
	b.Click(`.torrents .row input`)
	b.Run(`[...document.querySelectorAll(".actions button")].find(e => e.textContent === "Pause").click()`)
	b.Until(`document.querySelector(".torrents .row .badge")?.textContent === "paused"`)
}

// pageRate keeps the download under way while the test looks at it, also on a busy machine: it
// takes more than three minutes. With half of it, a path has just about 1 Mbit/s, and the page may
// show its rate in kbit/s for minutes.
const pageRate = 4e6

// daemon opens what braid daemon opens, in the leecher's AS: a node with its torrent, and the page.
func (s swarm) daemon(t *testing.T) (url string, torrent *node.Torrent) {
	t.Helper()
	sel, err := pathsel.New("all")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	n, err := node.Open(t.Context(), node.Config{
		Service: true, State: filepath.Join(dir, "state"), Identity: filepath.Join(dir, "identity.pem"), Logger: logger(t),
		Client:   client.Config{Selector: sel},
		Settings: node.Settings{Rates: node.Rates{Download: pageRate}},
		SCION: node.SCION{Required: true, Open: func(ctx context.Context) (*scionnet.Host, error) { // the node closes it
			ia := ia(t, "1-ff00:0:111")
			return scionnet.Open(ctx, scionnet.Config{ConfigDir: s.network.ConfigDir(ia), LocalIP: s.network.HostIP(ia)})
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	if torrent, err = n.Add(t.Context(), node.Options{
		Source: s.torrent.Source, Peers: []client.Peer{s.seeder}, Storage: node.Storage{Kind: "file", Dir: filepath.Join(dir, "data")},
	}); err != nil {
		t.Fatal(err)
	}
	access, err := web.OpenAccess(filepath.Join(dir, "password"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var server *web.Server
	api := v1.New(v1.Config{Node: n, Access: access, Journal: &v1.Journal{}, Addresses: func() []string { return server.Addresses() }})
	t.Cleanup(api.Close)
	routes, err := web.Routes(n, api, access, transmission.Options{State: dir, Logger: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if server, err = web.New(web.Config{Listen: []string{"127.0.0.1:0"}, Access: access, Logger: logger(t)}, routes); err != nil {
		t.Fatal(err)
	}
	server.Serve()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + server.Addresses()[0], torrent
}
