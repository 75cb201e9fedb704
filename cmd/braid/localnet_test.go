package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"braid/node/event"
	"braid/testbed"
)

// localNet is a local network: a bridge in a network namespace, with hosts in others.
type localNet struct {
	prefix string
	mu     sync.Mutex
	hosts  int
}

// localHost is a host of a local network.
type localHost struct {
	space, ip string
}

func startLocalNet(t *testing.T) *localNet {
	t.Helper()
	if testing.Short() {
		t.Skip("starts other clients in network namespaces")
	}
	if os.Getuid() != 0 {
		t.Skip("needs network namespaces: run as root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip: run ./scripts/install-deps")
	}
	l := &localNet{prefix: "l" + strings.ToLower(rand.Text()[:8])}
	l.space(t, l.prefix)
	ip(t, "-n", l.prefix, "link", "add", "lan", "type", "bridge", "mcast_snooping", "0")
	ip(t, "-n", l.prefix, "link", "set", "lan", "up")
	return l
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}

// space makes a network namespace, which is there until the test ends.
func (l *localNet) space(t *testing.T, name string) {
	t.Helper()
	ip(t, "netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	ip(t, "-n", name, "link", "set", "lo", "up")
}

// host adds a host to the network.
func (l *localNet) host(t *testing.T) *localHost {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts++
	h := &localHost{fmt.Sprintf("%s-%d", l.prefix, l.hosts), fmt.Sprintf("10.99.0.%d", l.hosts)}
	l.space(t, h.space)
	port := fmt.Sprintf("p%d", l.hosts)
	ip(t, "-n", l.prefix, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", h.space)
	ip(t, "-n", l.prefix, "link", "set", port, "master", "lan", "up")
	ip(t, "-n", h.space, "addr", "add", h.ip+"/24", "dev", "eth0")
	ip(t, "-n", h.space, "link", "set", "eth0", "up")
	ip(t, "-n", h.space, "route", "add", "default", "dev", "eth0")
	return h
}

// run has a command run on the host.
func (h *localHost) run(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	c := exec.CommandContext(t.Context(), "ip", append([]string{"netns", "exec", h.space}, cmd.Args...)...)
	c.Dir, c.Env = cmd.Dir, cmd.Env
	return c
}

// observe starts a command and hands each line of its output to see, until the test ends.
func observe(t *testing.T, cmd *exec.Cmd, see func(line []byte)) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			see(lines.Bytes())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%v said:\n%s", cmd.Args, said.String())
		}
	})
}

// testbed starts a SCION network of the topology two-paths on the host, with its files below a
// directory. Its addresses are in the subnet, if that is not "".
func (h *localHost) testbed(t *testing.T, dir, subnet string) testbed.State {
	t.Helper()
	net, up := filepath.Join(dir, "net"), make(chan struct{}, 1)
	observe(t, h.run(t, networkProcess(t, net, subnet)), func([]byte) {
		select {
		case up <- struct{}{}:
		default:
		}
	})
	soon(t, "the SCION network", func() bool { return len(up) > 0 })
	state, err := testbed.StateOf(net)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// watched is a braid whose paths a test looks at.
type watched struct {
	mu    sync.Mutex
	paths map[string]event.Path // by peer
	done  int                   // torrents that are complete
}

// braid runs a command with --json, which listens at port 6881.
func (h *localHost) braid(t *testing.T, args ...string) *watched {
	t.Helper()
	w := &watched{paths: map[string]event.Path{}}
	observe(t, h.run(t, braid(t, t.TempDir(), append([]string{args[0], "--json", "--sample", "50ms", "--dht", "off", "--listen", h.ip + ":6881"}, args[1:]...)...)), func(line []byte) {
		e, err := event.Parse(line)
		if err != nil {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		switch e := e.(type) {
		case *event.Progress:
			for _, p := range e.Paths {
				w.paths[p.Peer] = p
			}
		case *event.Done:
			w.done++
			for _, p := range e.Paths {
				w.paths[p.Peer] = p
			}
		}
	})
	return w
}

// has tells whether one of the paths is as wanted.
func (w *watched) has(wanted func(event.Path) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.paths {
		if wanted(p) {
			return true
		}
	}
	return false
}

// hasDone tells whether so many torrents are complete.
func (w *watched) hasDone(torrents int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done >= torrents
}

// isAt tells whether the peer of a path is on a host.
func (h *localHost) isAt(p event.Path) bool { return strings.HasPrefix(p.Peer, h.ip+":") }

func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(swarmPatience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, swarmPatience)
		}
	}
}

// foreignClient seeds or downloads a torrent with its data in dir, on a host.
type foreignClient struct {
	name  string
	need  []string
	start func(t *testing.T, h *localHost, torrent, dir string, lsd bool)
}

const libtorrentPeer = `
import libtorrent as lt, sys, time
torrent, directory, at, lsd = sys.argv[1:]
session = lt.session({
    'listen_interfaces': at, 'enable_dht': False, 'enable_lsd': lsd == 'True', 'enable_upnp': False, 'enable_natpmp': False,
    'allow_multiple_connections_per_ip': True,
})
handle = session.add_torrent({'ti': lt.torrent_info(torrent), 'save_path': directory})
handle.unset_flags(lt.torrent_flags.auto_managed)
handle.resume()
while True:
    time.sleep(1)
`

var foreignClients = []foreignClient{
	{"libtorrent", []string{"/usr/bin/python3", "-c", "import libtorrent"}, func(t *testing.T, h *localHost, torrent, dir string, lsd bool) {
		is := map[bool]string{true: "True", false: "False"}[lsd]
		background(t, h.run(t, exec.Command("/usr/bin/python3", "-c", libtorrentPeer, torrent, dir, h.ip+":6881", is)))
	}},
	{"qbittorrent", []string{"qbittorrent-nox", "--version"}, func(t *testing.T, h *localHost, torrent, dir string, lsd bool) {
		profile := t.TempDir()
		conf := filepath.Join(profile, "qBittorrent", "config")
		if err := os.MkdirAll(conf, 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("[LegalNotice]\nAccepted=true\n[Network]\nPortForwardingEnabled=false\n[Preferences]\nWebUI\\Address=%s\nWebUI\\Port=8080\n"+
			"[BitTorrent]\nSession\\DHTEnabled=false\nSession\\LSDEnabled=%t\nSession\\PeXEnabled=true\nSession\\MultiConnectionsPerIp=true\n"+
			"Session\\Interface=eth0\nSession\\InterfaceName=eth0\nSession\\InterfaceAddress=%s\nSession\\Port=6881\nSession\\DefaultSavePath=%s\n", h.ip, lsd, h.ip, dir)
		if err := os.WriteFile(filepath.Join(conf, "qBittorrent.conf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("qbittorrent-nox", "--profile="+profile, "--save-path="+dir, "--skip-dialog=true", torrent)
		cmd.Env = append(os.Environ(), "HOME="+profile)
		background(t, h.run(t, cmd))
	}},
	{"transmission", []string{"transmission-daemon", "--version"}, func(t *testing.T, h *localHost, torrent, dir string, lsd bool) {
		config, drop := t.TempDir(), t.TempDir()
		settings := fmt.Sprintf(`{"dht-enabled": false, "lpd-enabled": %t, "pex-enabled": true, "utp-enabled": false, "port-forwarding-enabled": false, "rpc-enabled": false,
			"peer-port": 6881, "bind-address-ipv4": "%s"}`, lsd, h.ip)
		if err := os.WriteFile(filepath.Join(config, "settings.json"), []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(torrent)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(drop, "it.torrent"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		background(t, h.run(t, exec.Command("transmission-daemon", "--foreground", "--config-dir", config, "--download-dir", dir, "--watch-dir", drop)))
	}},
}

// newTorrent makes a torrent without trackers in a directory of its own.
func newTorrent(t *testing.T, seed byte, size int) (torrent, dir string, data []byte) {
	t.Helper()
	dir = t.TempDir()
	data = randomFile(t, dir, seed, size)
	must(t, dir, "create", "file", "-o", "x.torrent", "--offline", "--piece-length", "64KiB")
	return filepath.Join(dir, "x.torrent"), dir, data
}

// listener prints who has sent an announce.
const listener = `
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('', 6771))
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack('4s4s', socket.inet_aton('239.192.152.143'), socket.inet_aton(sys.argv[1])))
print('ready', flush=True)
while True:
    print(s.recvfrom(2000)[1][0], flush=True)
`

// listen returns a function that waits until a host has sent an announce.
func (l *localNet) listen(t *testing.T) func(*testing.T, *localHost) {
	var mu sync.Mutex
	heard := map[string]bool{}
	h := l.host(t)
	observe(t, h.run(t, exec.Command("/usr/bin/python3", "-c", listener, h.ip)), func(line []byte) {
		mu.Lock()
		defer mu.Unlock()
		heard[string(line)] = true
	})
	wait := func(t *testing.T, h *localHost) {
		t.Helper()
		soon(t, "an announce of "+h.ip, func() bool { mu.Lock(); defer mu.Unlock(); return heard[h.ip] })
	}
	wait(t, &localHost{ip: "ready"})
	return wait
}

// Other clients and braid hear each other on the local network: a braid that downloads hears a
// foreign seed, and a foreign download hears a braid that seeds.
func TestForeignLocalDiscovery(t *testing.T) {
	t.Parallel()
	l := startLocalNet(t)
	announced := l.listen(t)
	for i, c := range foreignClients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			needProgram(t, c.need[0], c.need[1:]...)
			t.Run("seeds", func(t *testing.T) {
				t.Parallel()
				torrent, dir, _ := newTorrent(t, byte(20+i), 1<<20)
				ours, theirs := l.host(t), l.host(t)
				w := ours.braid(t, "download", torrent, "-o", t.TempDir(), "--lsd", "on", "--download-rate", "200kB/s")
				announced(t, ours)
				c.start(t, theirs, torrent, dir, true)
				soon(t, "a peer from the local network", func() bool {
					return w.has(func(p event.Path) bool { return theirs.isAt(p) && p.Source == "lsd" })
				})
				soon(t, "the download", func() bool { return w.hasDone(1) })
			})
			t.Run("downloads", func(t *testing.T) {
				t.Parallel()
				torrent, dir, data := newTorrent(t, byte(30+i), 1<<20)
				ours, theirs, out := l.host(t), l.host(t), t.TempDir()
				c.start(t, theirs, torrent, out, true)
				announced(t, theirs)
				ours.braid(t, "seed", torrent, "--data", dir, "--lsd", "on")
				soon(t, "the download", func() bool {
					got, err := os.ReadFile(filepath.Join(out, "file"))
					return err == nil && bytes.Equal(got, data)
				})
			})
		})
	}
}

// Other clients tell braid of peers, and it tells them: a hub, which is connected to a foreign seed
// and to a braid that knows nobody, tells the seed of that braid. The seed tells a third braid of
// it.
func TestForeignPeerExchange(t *testing.T) {
	t.Parallel()
	l := startLocalNet(t)
	for i, c := range foreignClients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			needProgram(t, c.need[0], c.need[1:]...)
			torrent, dir, _ := newTorrent(t, byte(40+i), 8<<20)
			seed, hub, alone, third := l.host(t), l.host(t), l.host(t), l.host(t)
			c.start(t, seed, torrent, dir, false)
			download := func(h *localHost, peers ...*localHost) *watched {
				args := []string{"download", torrent, "-o", t.TempDir(), "--download-rate", "20kB/s"} // it takes longer than the test
				for _, p := range peers {
					args = append(args, "--peer", p.ip+":6881")
				}
				return h.braid(t, args...)
			}
			first := download(alone)
			download(hub, seed, alone)
			soon(t, "the seed to be told of a braid", func() bool { return first.has(seed.isAt) })
			last := download(third, seed)
			soon(t, "a braid to be told by the seed", func() bool {
				return last.has(func(p event.Path) bool { return alone.isAt(p) && p.Source == "pex" })
			})
		})
	}
}
