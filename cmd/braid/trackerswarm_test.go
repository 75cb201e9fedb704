package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"braid/tracker/server"
)

// Real clients, unmodified, find each other through braid's tracker alone, over HTTP and over UDP, on loopback.

const swarmPatience = 2 * time.Minute

// needProgram fails the test if a program is missing: a skipped test would be taken for a passed one.
func needProgram(t *testing.T, program string, probe ...string) {
	t.Helper()
	if out, err := exec.Command(program, probe...).CombinedOutput(); err != nil && exec.Command("which", program).Run() != nil {
		t.Fatalf("%s %v: %v: %s; run ./scripts/install-deps", program, probe, err, out)
	}
}

// background runs a program that is ended with the test, and logs what it has said if the test fails.
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

// ready runs braid until the test ends, and gives the addresses of its ready event.
func ready(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	cmd := braid(t, dir, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	events, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(events)
	drained := make(chan struct{})
	var e struct {
		Event  string
		Listen []string
	}
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
	return e.Listen
}

func trackerStats(t *testing.T, url string) server.Stats {
	t.Helper()
	res, err := http.Get(strings.TrimSuffix(url, "/announce") + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var s server.Stats
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func freeTCP(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// libtorrentSeed seeds a torrent, and asks the tracker and scrapes it all the time: torrent, directory, port. One
// attempt to connect that fails must not cost a minute.
const libtorrentSeed = `
import libtorrent as lt, sys, time
session = lt.session({
    'listen_interfaces': '127.0.0.1:' + sys.argv[3], 'enable_dht': False, 'enable_lsd': False,
    'enable_upnp': False, 'enable_natpmp': False, 'allow_multiple_connections_per_ip': True, 'min_announce_interval': 1,
    'min_reconnect_time': 1, 'max_failcount': 1000,
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
			"--bt-enable-lpd=false", "--enable-peer-exchange=false", "--file-allocation=none", "--seed-time=60", "--summary-interval=0", torrent))
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
	{"braid", func(t *testing.T, torrent, out string) {
		background(t, braid(t, out, "download", torrent, "-o", out, "--json"))
	}},
}

func TestSwarmThroughTracker(t *testing.T) {
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
			urls := ready(t, dir, "tracker", "--listen", "http://127.0.0.1:0", "--listen", "udp://127.0.0.1:0", "--json",
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
			for name, out := range outs {
				if err := sameInTheEnd(ctx, filepath.Join(out, "file"), data); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			s := trackerStats(t, web)
			for ; transport == "udp" && s.Scrapes["udp"] == 0 && ctx.Err() == nil; s = trackerStats(t, web) { // libtorrent does so every two seconds
				time.Sleep(100 * time.Millisecond)
			}
			// Over HTTP they scrape when they like, if at all; server_test.go looks at that.
			if s.Announces[transport] < 5 || transport == "udp" && s.Scrapes["udp"] == 0 || s.Refusals[transport] != 0 {
				t.Errorf("%+v", s)
			}
			t.Logf("%+v", s)
		})
	}
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
