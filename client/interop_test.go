package client

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"braid/units/await"
)

// Real clients, unmodified, exchange a torrent with braid over TCP on loopback. Whatever looks for
// peers on other machines is off.

// need fails the test if a program is missing: a skipped test would be taken for a passed one.
func need(t *testing.T, program string, probe ...string) {
	t.Helper()
	if out, err := exec.Command(program, probe...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s; run ./scripts/install-deps", program, probe, err, out)
	}
}

// run starts a program that is ended with the test, and logs what it has said if the test fails.
func run(t *testing.T, name string, args ...string) (wait func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("%s said:\n%s", name, out.String())
		}
	})
	return func() error {
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Until(await.Deadline(t))):
			return fmt.Errorf("%s does not end", name)
		}
	}
}

// freePort is none of those that the system gives to connections: other tests make some before a
// client listens on it.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 10_000 + rand.IntN(20_000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		return port
	}
	t.Fatal("all ports are taken")
	return 0
}

// foreign is another client. seed serves the file of the torrent that is in dir; fetch downloads it
// into dir from the peer and ends.
type foreign struct {
	name  string
	need  func(t *testing.T)
	seed  func(t *testing.T, torrent, dir string, port int)
	fetch func(t *testing.T, torrent, dir string, port int, peer string)
}

// libtorrentScript is a client in a few lines: role, torrent, directory, port, peer.
const libtorrentScript = `
import libtorrent as lt, sys, time
role, torrent, directory, port = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
session = lt.session({
    'listen_interfaces': '127.0.0.1:%d' % port, 'enable_dht': False, 'enable_lsd': False,
    'enable_upnp': False, 'enable_natpmp': False, 'allow_multiple_connections_per_ip': True,
})
params = {'ti': lt.torrent_info(torrent), 'save_path': directory}
if role == 'seed':
    params['flags'] = lt.torrent_flags.seed_mode
handle = session.add_torrent(params)
handle.unset_flags(lt.torrent_flags.auto_managed)
handle.resume()
if role == 'fetch':
    host, port = sys.argv[5].rsplit(':', 1)
    handle.connect_peer((host, int(port)))
while role == 'seed' or not handle.status().is_seeding:
    time.sleep(0.05)
handle.flush_cache()
time.sleep(0.5)
`

// The system's Python: libtorrent comes from its package.
const systemPython = "/usr/bin/python3"

var foreigners = []foreign{
	{
		name: "aria2",
		need: func(t *testing.T) { need(t, "aria2c", "--version") },
		seed: func(t *testing.T, torrent, dir string, port int) {
			run(t, "aria2c", append(quietAria2(dir, port), "--check-integrity=true", "--seed-ratio=0.0", torrent)...)
		},
		// aria2 takes no peer's address but from a tracker, a magnet link or local discovery: a
		// tracker of one answer tells it of braid.
		fetch: func(t *testing.T, torrent, dir string, port int, peer string) {
			tracker := tellPeer(t, peer)
			if err := run(t, "aria2c", append(quietAria2(dir, port), "--seed-time=0", "--bt-tracker="+tracker, torrent)...)(); err != nil {
				t.Error(err)
			}
		},
	},
	{
		name: "libtorrent",
		need: func(t *testing.T) { need(t, systemPython, "-c", "import libtorrent") },
		seed: func(t *testing.T, torrent, dir string, port int) {
			run(t, systemPython, "-c", libtorrentScript, "seed", torrent, dir, strconv.Itoa(port))
		},
		fetch: func(t *testing.T, torrent, dir string, port int, peer string) {
			if err := run(t, systemPython, "-c", libtorrentScript, "fetch", torrent, dir, strconv.Itoa(port), peer)(); err != nil {
				t.Error(err)
			}
		},
	},
}

func quietAria2(dir string, port int) []string {
	return []string{
		"--no-conf", "--dir=" + dir, "--listen-port=" + strconv.Itoa(port), "--interface=127.0.0.1",
		"--enable-dht=false", "--enable-dht6=false", "--bt-enable-lpd=false", "--enable-peer-exchange=false",
		"--allow-overwrite=true", "--file-allocation=none", "--summary-interval=0",
	}
}

// tellPeer is an HTTP tracker that knows one peer (BEP 3, BEP 23).
func tellPeer(t *testing.T, peer string) string {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp4", peer)
	if err != nil {
		t.Fatal(err)
	}
	compact := string(a.IP.To4()) + string([]byte{byte(a.Port >> 8), byte(a.Port)})
	return serveBytes(t, "d8:intervali60e5:peers6:"+compact+"e")
}

func serveBytes(t *testing.T, body string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }))
	t.Cleanup(s.Close)
	return s.URL + "/announce"
}

func TestInteroperation(t *testing.T) {
	t.Parallel()
	for _, f := range foreigners {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.need(t)
			data := t.TempDir()
			randomFiles(t, data, "set", 3<<20, 0, 70_000, 1)
			c := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{PieceLength: 32 << 10})
			torrent := filepath.Join(t.TempDir(), "set.torrent")
			if err := os.WriteFile(torrent, c.Torrent, 0o644); err != nil {
				t.Fatal(err)
			}
			t.Run("braid downloads", func(t *testing.T) {
				t.Parallel()
				port := freePort(t)
				f.seed(t, torrent, data, port)
				out := t.TempDir()
				store := openStore(t, out)
				// It may take a moment to listen: the first attempts fail and are repeated.
				tr, err := openSession(t, Config{}).Add(c.Source, store, Options{Peers: []Peer{mustPeer(t, fmt.Sprintf("127.0.0.1:%d", port))}})
				if err != nil {
					t.Fatal(err)
				}
				wait(t, tr)
				tr.Close()
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				sameFiles(t, c.Source, data, out)
			})
			t.Run("braid seeds", func(t *testing.T) {
				t.Parallel()
				seeder := seed(t, c.Source, data)
				out := t.TempDir()
				f.fetch(t, torrent, out, freePort(t), seeder.Listening()[0].String())
				r, err := inFiles(c.Source, out).Check(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if !r.Complete() {
					t.Errorf("%s has fetched %d of %d pieces: %+v", f.name, r.GoodPieces(), len(r.Good), r.Files)
				}
				sameFiles(t, c.Source, data, out)
			})
		})
	}
}

// A magnet link from libtorrent's hands: the description comes by metadata exchange (BEP 9) from
// it.
func TestMagnetFromLibtorrent(t *testing.T) {
	t.Parallel()
	f := foreigners[1]
	f.need(t)
	data, out := t.TempDir(), t.TempDir()
	randomFiles(t, data, "set", 1<<20, 5)
	c := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{PieceLength: 16 << 10})
	torrent := filepath.Join(t.TempDir(), "set.torrent")
	if err := os.WriteFile(torrent, c.Torrent, 0o644); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	f.seed(t, torrent, data, port)
	src, err := ParseMagnet(strings.Join([]string{c.Source.Magnet(), fmt.Sprintf("x.pe=127.0.0.1:%d", port)}, "&"))
	if err != nil {
		t.Fatal(err)
	}
	store := openStore(t, out)
	tr, err := openSession(t, Config{}).Add(src, store, Options{Peers: src.Peers})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, tr)
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, c.Source, data, out)
}

// The download stopped at 16.7 MB.
func TestOnlyTransmissionSeeds(t *testing.T) { onlyTransmissionSeeds(t, 24e6) }

func TestLargeOnlyTransmissionSeeds(t *testing.T) { onlyTransmissionSeeds(t, 120e6) }

// Transmission 3.00 as the only seed rejects a request now and then, though it serves us, and
// answers no cancel.
func onlyTransmissionSeeds(t *testing.T, size int) {
	t.Parallel()
	need(t, "transmission-daemon", "--version")
	data, home := t.TempDir(), t.TempDir()
	writeRandom(t, filepath.Join(data, "file"), size)
	c := makeTorrent(t, filepath.Join(data, "file"), CreateOptions{})
	port := freePort(t)
	for name, content := range map[string]string{
		"watch/file.torrent": string(c.Torrent),
		"config/settings.json": fmt.Sprintf(`{"bind-address-ipv4": "127.0.0.1", "peer-port": %d, "dht-enabled": false, "lpd-enabled": false,
			"pex-enabled": false, "utp-enabled": false, "rpc-enabled": false, "port-forwarding-enabled": false}`, port),
	} {
		name = filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "transmission-daemon", "--foreground", "--config-dir", filepath.Join(home, "config"), "--download-dir", data,
		"--watch-dir", filepath.Join(home, "watch"), "--no-incomplete-dir")
	fullDownload(t, c.Source, data, mustPeer(t, fmt.Sprintf("127.0.0.1:%d", port)))
}

// followScript is libtorrent downloading from one peer. It fails if the connection ends before it
// is complete.
const followScript = `
import libtorrent as lt, sys, time
torrent, directory, port, peer = sys.argv[1:]
session = lt.session({
    'listen_interfaces': '127.0.0.1:' + port, 'enable_dht': False, 'enable_lsd': False, 'enable_upnp': False,
    'enable_natpmp': False, 'enable_outgoing_utp': False, 'alert_mask': lt.alert.category_t.all_categories,
})
handle = session.add_torrent({'ti': lt.torrent_info(torrent), 'save_path': directory})
handle.unset_flags(lt.torrent_flags.auto_managed)
handle.resume()
host, port = peer.rsplit(':', 1)
handle.connect_peer((host, int(port)))
while not handle.status().is_seeding:
    session.wait_for_alert(50)
    for alert in session.pop_alerts():
        if isinstance(alert, lt.peer_disconnected_alert) and 'torrent finished' not in alert.message():
            sys.exit(alert.message())
`

// libtorrent stays connected to a braid that it downloads from as fast as that one downloads
// itself.
func TestLibtorrentFollows(t *testing.T) {
	t.Parallel()
	foreigners[1].need(t)
	src, seeds, dir, _ := limitedSeed(t, 1<<20, 200<<10)
	torrent := filepath.Join(t.TempDir(), "file.torrent")
	c := makeTorrent(t, filepath.Join(dir, "file"), CreateOptions{PieceLength: src.Layout.PieceLength})
	if err := os.WriteFile(torrent, c.Torrent, 0o644); err != nil {
		t.Fatal(err)
	}
	s := openSession(t, Config{Listen: []Peer{mustPeer(t, "127.0.0.1:0")}})
	store := openStore(t, t.TempDir())
	defer store.Close()
	tr, err := s.Add(src, store, Options{Peers: seeds})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	out := t.TempDir()
	if err := run(t, systemPython, "-c", followScript, torrent, out, strconv.Itoa(freePort(t)), s.Listening()[0].String())(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, src, dir, out)
}
