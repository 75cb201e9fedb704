package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// seedFrom starts clients that seed the file in a directory, which they find complete.
func seedFrom(t *testing.T, name, torrent, dir string) {
	t.Helper()
	switch name {
	case "libtorrent":
		background(t, exec.Command("/usr/bin/python3", "-c", libtorrentSeed, torrent, dir, freeTCP(t)))
		return
	case "aria2":
		background(t, exec.Command("aria2c", "--no-conf", "--dir="+dir, "--listen-port="+freeTCP(t), "--interface=127.0.0.1", "--enable-dht=false",
			"--enable-dht6=false", "--bt-enable-lpd=false", "--enable-peer-exchange=false", "--check-integrity=true", "--seed-ratio=0", "--summary-interval=0", torrent))
		return
	}
	for _, c := range swarmClients {
		if c.name == name {
			c.start(t, torrent, dir)
		}
	}
}

// Ordinary clients, unmodified, fetch what only a host on SCION has, through a gateway, whose tracker is the
// only one that they know. And each seeds what a braid that is on SCION only fetches.
func TestGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	t.Parallel()
	needProgram(t, "/usr/bin/python3", "-c", "import libtorrent")
	n, from, to := startNetwork(t, "two-paths")
	dir := t.TempDir()
	data := randomFile(t, dir, 21, 2<<20)
	scion := ready(t, dir, "tracker", "--json", "--min-interval", "1s", "--interval", "5s", "--config-dir", n.ConfigDir(from),
		"--listen", fmt.Sprintf("scion://%s,[%s]:0", from, n.HostIP(from)))[0]
	at := "127.0.0.1:" + freeTCP(t)
	must(t, dir, "create", "file", "-o", "public.torrent", "--piece-length", "64KiB", "--tracker", "http://"+at+"/announce", "--offline")
	torrent := filepath.Join(dir, "public.torrent")
	ready(t, dir, "seed", torrent, "--json", "--transport", "scion", "--no-trackers", "--tracker", scion, "--dht", "off",
		"--config-dir", n.ConfigDir(from), "--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from)))
	collection, seeded := "# ours\npublic.torrent\n", map[string][]byte{}
	for i, name := range []string{"libtorrent", "aria2", "transmission", "qbittorrent"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		seeded[name] = randomFile(t, filepath.Join(dir, name), byte(30+i), 1<<20)
		must(t, dir, "create", name+"/file", "-o", name+".torrent", "--piece-length", "64KiB", "--tracker", "http://"+at+"/announce", "--offline")
		collection += name + ".torrent\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "collection"), []byte(collection), 0o600); err != nil {
		t.Fatal(err)
	}
	gate := readyEvent(t, dir, "gateway", "--collection", "collection", "--json", "-v", "--cache", "cache", "--tracker-listen", "http://"+at,
		"--tracker", scion, "--interval", "5s", "--dht", "off", "--config-dir", n.ConfigDir(to),
		"--listen", fmt.Sprintf("%s,[%s]:0", to, n.HostIP(to)), "--listen", "127.0.0.1:0")
	if len(gate.Trackers) != 1 || len(gate.Listen) != 2 {
		t.Fatalf("%+v", gate)
	}
	ctx, cancel := context.WithTimeout(t.Context(), swarmPatience)
	defer cancel()
	outs := map[string]string{"libtorrent": t.TempDir()}
	background(t, exec.Command("/usr/bin/python3", "-c", libtorrentFetch, torrent, outs["libtorrent"], freeTCP(t)))
	for _, c := range swarmClients {
		if c.name != "braid" {
			outs[c.name] = t.TempDir()
			c.start(t, torrent, outs[c.name])
		}
	}
	for name := range seeded {
		seedFrom(t, name, filepath.Join(dir, name+".torrent"), filepath.Join(dir, name))
	}
	for name, out := range outs {
		if err := sameInTheEnd(ctx, filepath.Join(out, "file"), data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range seeded {
		out := t.TempDir()
		must(t, dir, "download", name+".torrent", "-o", out, "--json", "--transport", "scion", "--no-trackers", "--tracker", scion, "--dht", "off",
			"--config-dir", n.ConfigDir(from), "--local", n.HostIP(from).String())
		if got, err := os.ReadFile(filepath.Join(out, "file")); err != nil || !bytes.Equal(got, want) {
			t.Errorf("seeded by %s: %d bytes, %v", name, len(got), err)
		}
	}
	if _, err := askTracker(t, gate.Trackers[0], 1); err == nil || !strings.Contains(err.Error(), "does not serve this torrent") {
		t.Errorf("a torrent that is not allowed: %v", err)
	}
}
