package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/node/event"
	"braid/testbed/bench"
	"braid/tracker/server"
	"braid/tracker/wire"
)

// Real clients, unmodified, find each other through braid's tracker alone, over HTTP and over UDP,
// on loopback.

const swarmPatience = 2 * time.Minute

// needProgram fails the test if a program is missing: a skipped test would be taken for a passed
// one.
func needProgram(t *testing.T, program string, probe ...string) {
	t.Helper()
	if out, err := exec.Command(program, probe...).CombinedOutput(); err != nil && exec.Command("which", program).Run() != nil {
		t.Fatalf("%s %v: %v: %s; run ./scripts/install-deps", program, probe, err, out)
	}
}

// background runs a program that is ended with the test, and logs what it has said if the test
// fails.
func background(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", cmd.Path, out.String())
		}
	})
}

// piped starts a command, and returns its standard output and what it says on standard error.
func piped(t *testing.T, cmd *exec.Cmd) (io.Reader, *bytes.Buffer) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return out, &said
}

// readyEvent runs braid until the test ends, and gives the addresses of its ready event.
func readyEvent(t *testing.T, dir string, args ...string) event.Ready {
	t.Helper()
	cmd := braid(t, dir, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	events, said := piped(t, cmd)
	lines := bufio.NewScanner(events)
	drained := make(chan struct{})
	var e event.Ready
	for e.Event != "ready" && lines.Scan() {
		_ = json.Unmarshal(lines.Bytes(), &e)
	}
	go func() {
		defer close(drained)
		for lines.Scan() {
		}
	}()
	t.Cleanup(func() {
		<-drained      // the end of the test's context has interrupted it
		_ = cmd.Wait() // with the code that is looked at
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("braid %s: exit code %d: %s", args[0], code, said.String())
		} else if t.Failed() {
			t.Logf("braid %s said: %s", args[0], said.String())
		}
	})
	if e.Event != "ready" {
		t.Fatalf("braid %s is not ready: %s", args[0], said.String())
	}
	return e
}

// ready is the addresses in the ready event of a command that runs until the end of the test.
func ready(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	return readyEvent(t, dir, args...).Listen
}

// statsAnywhere has a tracker tell what it knows on any port.
const statsAnywhere = "stats://127.0.0.1:0"

// trackerStats asks again while a shared store is slow to answer.
func trackerStats(t *testing.T, url string) (s server.Stats) {
	t.Helper()
	soon(t, "the figures of the tracker", func() bool {
		res, err := http.Get(strings.Replace(url, "stats://", "http://", 1) + "/stats")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return json.NewDecoder(res.Body).Decode(&s) == nil
	})
	return s
}

// freeTCP returns a free port of loopback, for a client that cannot choose one itself.
func freeTCP(t *testing.T) string {
	t.Helper()
	addr, err := bench.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(int(addr.Port()))
}

// libtorrentSeed seeds a torrent, and asks the tracker and scrapes it all the time: torrent,
// directory, port. One attempt to connect that fails must not cost a minute. Without
// ssrf_mitigation off it asks a tracker on loopback for nothing but /announce, so that it never
// scrapes.
const libtorrentSeed = `
import libtorrent as lt, sys, time
session = lt.session({
    'listen_interfaces': '127.0.0.1:' + sys.argv[3], 'enable_dht': False, 'enable_lsd': False,
    'enable_upnp': False, 'enable_natpmp': False, 'allow_multiple_connections_per_ip': True, 'min_announce_interval': 1,
    'min_reconnect_time': 1, 'max_failcount': 1000, 'ssrf_mitigation': False,
})
handle = session.add_torrent({'ti': lt.torrent_info(sys.argv[1]), 'save_path': sys.argv[2], 'flags': lt.torrent_flags.seed_mode})
handle.unset_flags(lt.torrent_flags.auto_managed)
handle.resume()
while True:
    time.sleep(1)
    handle.force_reannounce()
    time.sleep(1)
    handle.scrape_tracker()
`

// swarmClients download the torrent into out, knowing nobody but its tracker.
var swarmClients = []struct {
	name  string
	start func(t *testing.T, torrent, out string)
}{
	{"aria2", func(t *testing.T, torrent, out string) {
		needProgram(t, "aria2c", "--version")
		// Its UDP trackers are asked through the socket of its DHT, which knows no node here.
		background(t, exec.Command("aria2c", "--no-conf", "--dir="+out, "--listen-port="+freeTCP(t), "--interface=127.0.0.1",
			"--enable-dht=true", "--dht-listen-port="+freeTCP(t), "--dht-file-path="+filepath.Join(t.TempDir(), "dht"), "--enable-dht6=false",
			"--bt-enable-lpd=false", "--enable-peer-exchange=false", "--file-allocation=none", "--seed-time=60", "--seed-ratio=0", "--summary-interval=0", torrent))
	}},
	{"qbittorrent", func(t *testing.T, torrent, out string) {
		needProgram(t, "qbittorrent-nox", "--version")
		profile := t.TempDir()
		conf := filepath.Join(profile, "qBittorrent", "config")
		if err := os.MkdirAll(conf, 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("[LegalNotice]\nAccepted=true\n[Network]\nPortForwardingEnabled=false\n[Preferences]\nWebUI\\Address=127.0.0.1\nWebUI\\Port=%s\n"+
			"[BitTorrent]\nSession\\DHTEnabled=false\nSession\\LSDEnabled=false\nSession\\PeXEnabled=false\nSession\\MultiConnectionsPerIp=true\n"+
			"Session\\Interface=lo\nSession\\InterfaceAddress=127.0.0.1\nSession\\Port=%s\nSession\\DefaultSavePath=%s\n", freeTCP(t), freeTCP(t), out)
		if err := os.WriteFile(filepath.Join(conf, "qBittorrent.conf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("qbittorrent-nox", "--profile="+profile, "--save-path="+out, "--skip-dialog=true", torrent)
		cmd.Env = append(os.Environ(), "HOME="+profile)
		background(t, cmd)
	}},
	{"transmission", func(t *testing.T, torrent, out string) {
		needProgram(t, "transmission-daemon", "--version")
		config := t.TempDir()
		settings := `{"dht-enabled": false, "lpd-enabled": false, "pex-enabled": false, "utp-enabled": false, "port-forwarding-enabled": false, "bind-address-ipv4": "127.0.0.1"}`
		if err := os.WriteFile(filepath.Join(config, "settings.json"), []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		// It takes the torrents of a directory. It never connects to peers on loopback: the others
		// connect to it.
		watched := t.TempDir()
		b, err := os.ReadFile(torrent)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(watched, "it.torrent"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		background(t, exec.Command("transmission-daemon", "--foreground", "--config-dir", config, "--download-dir", out, "--watch-dir", watched,
			"--peerport", freeTCP(t), "--port", freeTCP(t), "--rpc-bind-address", "127.0.0.1"))
	}},
	{"braid", func(t *testing.T, torrent, out string) {
		background(t, braid(t, out, "download", torrent, "-o", out, "--json"))
	}},
}

func TestSwarmThroughTracker(t *testing.T) {
	t.Parallel()
	needProgram(t, "/usr/bin/python3", "-c", "import libtorrent")
	dir := t.TempDir()
	data := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{9}).Read(data)
	if err := os.WriteFile(filepath.Join(dir, "file"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, transport := range []string{"http", "udp"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel() // the clients wait most of the time
			urls := ready(t, dir, "tracker", "--listen", "http://127.0.0.1:0", "--listen", "udp://127.0.0.1:0", "--listen", statsAnywhere, "--json",
				"--interval", "5s", "--min-interval", "1s", "--data", t.TempDir())
			web, url := urls[0], urls[0]
			if transport == "udp" {
				url = urls[1] + "/announce"
			}
			torrent := filepath.Join(dir, transport+".torrent")
			if code, _, said := ends(t, dir, "create", "file", "-o", torrent, "--tracker", url, "--piece-length", "64KiB"); code != 0 {
				t.Fatal(said)
			}
			background(t, exec.Command("/usr/bin/python3", "-c", libtorrentSeed, torrent, dir, freeTCP(t)))
			ctx, cancel := context.WithTimeout(t.Context(), swarmPatience)
			defer cancel()
			outs := map[string]string{}
			for _, c := range swarmClients {
				outs[c.name] = t.TempDir()
				c.start(t, torrent, outs[c.name])
			}
			// Meanwhile each is known to the tracker, by its ID to a client that wants it told
			// (braid listens nowhere here). Who is done may leave.
			missing := map[string]bool{"-LT": true, "A2-": true, "-qB": true, "-TR": true}
			for len(missing) > 0 && ctx.Err() == nil {
				known := knownPeers(t, web, torrent)
				maps.DeleteFunc(missing, func(id string, _ bool) bool { return strings.Contains(known, "peer id20:"+id) })
				time.Sleep(50 * time.Millisecond)
			}
			if len(missing) > 0 {
				t.Errorf("not known to the tracker: %v", missing)
			}
			for name, out := range outs {
				if err := sameInTheEnd(ctx, filepath.Join(out, "file"), data); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			// libtorrent scrapes every two seconds, transmission soon after its start. The others
			// scrape when they like, if at all.
			s := trackerStats(t, urls[2])
			for ; s.Scrapes[transport] < 3 && ctx.Err() == nil; s = trackerStats(t, urls[2]) {
				time.Sleep(100 * time.Millisecond)
			}
			if s.Scrapes[transport] < 3 || s.Refusals[transport] != 0 {
				t.Errorf("%+v", s)
			}
			t.Logf("%+v", s)
		})
	}
}

// knownPeers is what a peer with nothing to offer is told by the tracker, with the IDs of all
// others.
func knownPeers(t *testing.T, url, torrent string) string {
	t.Helper()
	source, err := client.OpenSource(t.Context(), torrent)
	if err != nil {
		t.Fatal(err)
	}
	a := wire.Announce{InfoHash: wire.InfoHash(source.InfoHash), PeerID: wire.PeerID{1}, Left: 1, NumWant: 100}
	res, err := http.Get(url + "?" + a.Query())
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, wire.MaxAnswer))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// sameInTheEnd waits until the file has the content.
func sameInTheEnd(ctx context.Context, name string, want []byte) error {
	for {
		got, err := os.ReadFile(name)
		if err == nil && bytes.Equal(got, want) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d of %d bytes", len(got), len(want)), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
