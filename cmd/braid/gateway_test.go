package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"braid/node/event"
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

// Ordinary clients, unmodified, fetch what only a host on SCION has, through a gateway, whose
// tracker is the only one that they know. And each seeds what a braid that is on SCION only
// fetches.
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
		"--tracker-listen", statsAnywhere, "--tracker", scion, "--interval", "5s", "--dht", "off", "--config-dir", n.ConfigDir(to),
		"--listen", fmt.Sprintf("%s,[%s]:0", to, n.HostIP(to)), "--listen", "127.0.0.1:0")
	if len(gate.Trackers) != 2 || len(gate.Listen) != 2 {
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
	// Each side has given what the other has got.
	figures := string(get(t, http.DefaultTransport, strings.Replace(gate.Trackers[1], "stats://", "http://", 1)+"/metrics"))
	for _, direction := range []string{"received", "sent"} {
		for _, side := range []string{"scion", "ip"} {
			series := fmt.Sprintf("braid_gateway_%s_bytes_total{network=%q} ", direction, side)
			_, rest, _ := strings.Cut(figures, series)
			value, _, _ := strings.Cut(rest, "\n")
			if n, err := strconv.ParseFloat(value, 64); err != nil || n < float64(len(data)) {
				t.Errorf("%s%s, %v: want at least %d", series, value, err, len(data))
			}
		}
	}
	if _, err := askTracker(t, gate.Trackers[0], 1); err == nil || !strings.Contains(err.Error(), "does not serve this torrent") {
		t.Errorf("a torrent that is not allowed: %v", err)
	}
}

// started starts a braid that the test may kill, and returns its first event.
func started(t *testing.T, dir string, args ...string) (event.Ready, *exec.Cmd) {
	t.Helper()
	cmd := braid(t, dir, args...)
	events, said := piped(t, cmd)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("braid %s said: %s", args[0], said.String())
		}
	})
	var e event.Ready
	if err := json.NewDecoder(events).Decode(&e); err != nil || e.Event != "ready" {
		t.Fatalf("%+v, %v", e, err)
	}
	go func() { _, _ = io.Copy(io.Discard, events) }() // it ends with the process
	return e, cmd
}

// there counts the blocks of a file that are as they shall be.
func there(name string, want []byte) (n int) {
	got, _ := os.ReadFile(name)
	for at := 0; at < len(got); at += 1 << 14 {
		if end := min(at+1<<14, len(want)); end <= len(got) && bytes.Equal(got[at:end], want[at:end]) {
			n++
		}
	}
	return n
}

// Two gateways are fellows. Clients that know only the tracker of the first get to know both, and
// when it is killed in mid-transfer, they go on with the second.
func TestGatewayKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	t.Parallel()
	needProgram(t, "/usr/bin/python3", "-c", "import libtorrent")
	needProgram(t, "aria2c", "--version")
	n, from, to := startNetwork(t, "two-paths")
	dir := t.TempDir()
	data := randomFile(t, dir, 41, 3<<20)
	scion := ready(t, dir, "tracker", "--json", "--min-interval", "1s", "--interval", "5s", "--config-dir", n.ConfigDir(from),
		"--listen", fmt.Sprintf("scion://%s,[%s]:0", from, n.HostIP(from)))[0]
	at := []string{"127.0.0.1:" + freeTCP(t), "127.0.0.1:" + freeTCP(t)}
	must(t, dir, "create", "file", "-o", "it.torrent", "--piece-length", "64KiB", "--tracker", "http://"+at[0]+"/announce", "--offline")
	torrent := filepath.Join(dir, "it.torrent")
	ready(t, dir, "seed", torrent, "--json", "--transport", "scion", "--no-trackers", "--tracker", scion, "--dht", "off",
		"--config-dir", n.ConfigDir(from), "--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from)))
	gateway := func(t *testing.T, i int) *exec.Cmd {
		_, cmd := started(t, dir, "gateway", torrent, "--json", "--cache", fmt.Sprint("cache", i), "--tracker-listen", "http://"+at[i], "--fellow", "http://"+at[1-i],
			"--no-trackers", "--tracker", scion, "--interval", "5s", "--dht", "off", "--upload-rate", "2mbit", "--config-dir", n.ConfigDir(to),
			"--listen", fmt.Sprintf("%s,[%s]:0", to, n.HostIP(to)), "--listen", "127.0.0.1:0")
		return cmd
	}
	gateway(t, 1)
	for name, start := range map[string]func(t *testing.T, out string){
		"libtorrent": func(t *testing.T, out string) {
			background(t, exec.Command("/usr/bin/python3", "-c", libtorrentFetch, torrent, out, freeTCP(t)))
		},
		"aria2": func(t *testing.T, out string) {
			for _, c := range swarmClients {
				if c.name == "aria2" {
					c.start(t, torrent, out)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			first, out := gateway(t, 0), t.TempDir()
			start(t, out)
			longest := killedAmid(t, first, filepath.Join(out, "file"), data)
			t.Logf("the longest time without data after the kill: %v", longest)
		})
	}
}

// killedAmid kills a process once a file has a fifth of its data, waits for the rest, and returns
// the longest time without more of it.
func killedAmid(t *testing.T, victim *exec.Cmd, name string, data []byte) (longest time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), swarmPatience)
	defer cancel()
	had, killed, since := 0, false, time.Now()
	for blocks := len(data) >> 14; had < blocks; time.Sleep(20 * time.Millisecond) {
		has := there(name, data)
		switch {
		case ctx.Err() != nil:
			t.Fatalf("%d of %d blocks are there", has, blocks)
		case !killed && has == blocks:
			t.Fatal("it was complete before the gateway was killed")
		case !killed && has > blocks/5:
			if err := victim.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			killed, since = true, time.Now()
		case killed && has > had:
			longest, since = max(longest, time.Since(since)), time.Now()
		}
		had = has
	}
	return longest
}
