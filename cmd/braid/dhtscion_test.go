package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"braid/client"
	"braid/node/event"
)

// A node of the DHT in one AS, a seed there that tells it of a torrent, and a download in another
// AS that has the hash alone.
func TestMagnetOverSCION(t *testing.T) {
	t.Parallel()
	n, from, to := startNetwork(t, "two-paths")
	dir, out := t.TempDir(), t.TempDir()
	data := randomFile(t, dir, 10, 1<<20)
	hub := ready(t, dir, "dht", "--json", "--config-dir", n.ConfigDir(from), "--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from)))
	must(t, dir, "create", "file", "-o", "x.torrent")
	src, err := client.OpenSource(t.Context(), filepath.Join(dir, "x.torrent"))
	if err != nil {
		t.Fatal(err)
	}
	magnet := "magnet:?xt=urn:btih:" + src.InfoHash.HexString()
	ready(t, dir, "seed", "x.torrent", "--json", "--config-dir", n.ConfigDir(from), "--dht-node", hub[0],
		"--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from)))
	where := []string{"--config-dir", n.ConfigDir(to), "--local", n.HostIP(to).String(), "--transport", "scion", "--json"}
	code, events, said := ends(t, out, append([]string{"download", magnet, "--dht-node", hub[0], "-o", out}, where...)...)
	if code != 0 {
		t.Fatalf("%d: %s%s", code, events, said)
	}
	if got, err := os.ReadFile(filepath.Join(out, "file")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// The tracker of a running swarm is killed. A download goes on, and a newcomer in another AS, which
// knows only a node of the DHT, finds the swarm all the same.
func TestTrackerDies(t *testing.T) {
	t.Parallel()
	n, from, to := startNetwork(t, "two-paths")
	dir := t.TempDir()
	data := randomFile(t, dir, 11, 3<<20)
	here := []string{"--json", "--config-dir", n.ConfigDir(from), "--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from))}
	there := []string{"--json", "--config-dir", n.ConfigDir(to), "--local", n.HostIP(to).String(), "--transport", "scion"}
	hub := ready(t, dir, append([]string{"dht"}, here...)...)[0]
	tracker := braid(t, dir, "tracker", "--json", "--config-dir", n.ConfigDir(from), "--listen", fmt.Sprintf("scion://%s,[%s]:0", from, n.HostIP(from)))
	said := listen(t, tracker)
	var at event.Ready
	said(func(line []byte) bool { return json.Unmarshal(line, &at) == nil && at.Event == "ready" })
	must(t, dir, "create", "file", "-o", "x.torrent", "--tracker", at.Listen[0])
	torrent := filepath.Join(dir, "x.torrent")
	ready(t, dir, append([]string{"seed", torrent, "--dht-node", hub}, here...)...)

	slow := braid(t, t.TempDir(), append([]string{"download", torrent, "--dht", "off", "--download-rate", "600kB/s", "--sample", "50ms"}, there...)...)
	heard := listen(t, slow)
	heard(func(line []byte) bool {
		e, _ := event.Parse(line)
		p, ok := e.(*event.Progress)
		return ok && p.PiecesDone > 0
	})
	if err := tracker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = tracker.Wait()

	out := t.TempDir()
	code, events, errs := ends(t, out, append([]string{"download", torrent, "--dht-node", hub, "-o", out}, there...)...)
	if got, err := os.ReadFile(filepath.Join(out, "file")); code != 0 || err != nil || !bytes.Equal(got, data) {
		t.Errorf("the newcomer: exit code %d, %d bytes, %v: %s%s", code, len(got), err, events, errs)
	}
	heard(func([]byte) bool { return false }) // to the end
	if err := slow.Wait(); err != nil {
		t.Errorf("the download that was under way: %v", err)
	}
}

// listen starts a command. The returned function reads lines of its output until one is right, or
// until the output ends.
func listen(t *testing.T, cmd *exec.Cmd) func(right func(line []byte) bool) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	return func(right func([]byte) bool) {
		for lines.Scan() && !right(lines.Bytes()) {
		}
	}
}

// A node on SCION publishes itself in the DHT over IP. A host in another AS knows a node on IP and
// the publisher's key. So it gets into the DHT over SCION, and finds what was announced there only.
func TestFirstNodesThroughItem(t *testing.T) {
	t.Parallel()
	n, from, to := startNetwork(t, "two-paths")
	dir, out := t.TempDir(), t.TempDir()
	data := randomFile(t, dir, 12, 1<<20)
	onIP := ready(t, dir, "dht", "--json", "--listen", "127.0.0.1:0")[0]
	here := []string{"--json", "--config-dir", n.ConfigDir(from), "--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from))}
	publisher := readyEvent(t, dir, append([]string{"dht", "--listen", "127.0.0.1:0", "--dht-node", onIP, "--publish", "key.pem"}, here...)...)
	if len(publisher.Item) != 64 {
		t.Fatalf("the publisher's key: %+v", publisher)
	}
	must(t, dir, "create", "file", "-o", "x.torrent")
	src, err := client.OpenSource(t.Context(), filepath.Join(dir, "x.torrent"))
	if err != nil {
		t.Fatal(err)
	}
	scion := publisher.Listen[slices.IndexFunc(publisher.Listen, func(a string) bool { return strings.Contains(a, ",") })]
	ready(t, dir, append([]string{"seed", "x.torrent", "--dht-node", scion}, here...)...)
	code, events, said := ends(t, out, "download", "magnet:?xt=urn:btih:"+src.InfoHash.HexString(), "-o", out, "--json",
		"--config-dir", n.ConfigDir(to), "--local", n.HostIP(to).String(), "--listen", "127.0.0.1:0",
		"--dht", "on", "--dht-node", onIP, "--dht-item", publisher.Item)
	if code != 0 {
		t.Fatalf("%d: %s%s", code, events, said)
	}
	if got, err := os.ReadFile(filepath.Join(out, "file")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A download knows one peer on SCION and no node of the DHT. The peer tells where its node is.
// Through that node the download finds the peers of another torrent, of which it has the hash
// alone.
func TestPeerTellsOfItsNode(t *testing.T) {
	t.Parallel()
	n, from, to := startNetwork(t, "two-paths")
	dir, out := t.TempDir(), t.TempDir()
	var magnets []string
	for name, size := range map[string]int{"known": 32 << 20, "other": 100_000} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte{byte(size)}, size), 0o600); err != nil {
			t.Fatal(err)
		}
		must(t, dir, "create", name, "-o", name+".torrent")
	}
	for _, name := range []string{"known", "other"} {
		src, err := client.OpenSource(t.Context(), filepath.Join(dir, name+".torrent"))
		if err != nil {
			t.Fatal(err)
		}
		magnets = append(magnets, "magnet:?xt=urn:btih:"+src.InfoHash.HexString())
	}
	here := []string{"--json", "--config-dir", n.ConfigDir(from), "--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from))}
	hub := ready(t, dir, append([]string{"dht"}, here...)...)[0]
	seed := ready(t, dir, append([]string{"seed", "known.torrent", "--dht-node", hub, "--identity", "seed.pem"}, here...)...)[0]
	ready(t, dir, append([]string{"seed", "other.torrent", "--dht-node", hub, "--identity", "other.pem"}, here...)...)
	// Without nodes of an earlier run, braid would not begin to search for a hash alone.
	if err := os.WriteFile(filepath.Join(out, "own.dht.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The rate keeps the known peer connected until the other download is complete.
	download := braid(t, out, "download", magnets[0]+"&x.pe="+url.QueryEscape(seed), magnets[1], "-o", out, "--json", "--identity", "own.pem",
		"--download-rate", "200kB/s", "--config-dir", n.ConfigDir(to), "--local", n.HostIP(to).String(), "--transport", "scion")
	found := false
	listen(t, download)(func(line []byte) bool {
		e, _ := event.Parse(line)
		d, ok := e.(*event.Done)
		found = found || ok && d.Torrent == "other"
		return found
	})
	if !found {
		t.Error("the other torrent was not found")
	}
	_ = download.Process.Kill()
	_ = download.Wait()
}
