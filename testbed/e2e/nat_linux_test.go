package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"braid/units/await"
)

// natLab is a SCION network in a network namespace, and hosts behind NATs (nftables masquerade) in
// others:
//
//	net 10.77.0.0/24 ── gw1 10.78.1.2 ── a1 192.168.1.11, a2 192.168.1.12   in 1-ff00:0:110
//	                 └─ gw2 10.78.2.2 ── b1 192.168.2.11                    in 1-ff00:0:111
//
// Both ASes have two border routers.
type natLab struct {
	t       *testing.T
	prefix  string
	dir     string
	program string
}

func startNATLab(t *testing.T) *natLab {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	if os.Getuid() != 0 {
		t.Skip("needs network namespaces: run as root")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: run ./scripts/install-deps", tool)
		}
	}
	l := &natLab{t: t, prefix: fmt.Sprintf("b%d", os.Getpid()), dir: t.TempDir(), program: braidProgram(t)}
	for _, s := range []string{"net", "gw1", "gw2", "a1", "a2", "b1"} {
		l.ip("netns", "add", l.prefix+s)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", l.prefix+s).Run() })
		l.in(s, "ip", "link", "set", "lo", "up")
	}
	l.in("net", "ip", "route", "add", "local", "10.77.0.0/24", "dev", "lo")
	for i, hosts := range [][]string{1: {"a1", "a2"}, 2: {"b1"}} {
		if hosts == nil {
			continue
		}
		gw, lan := fmt.Sprintf("gw%d", i), fmt.Sprintf("192.168.%d.", i)
		l.in(gw, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
		up := fmt.Sprintf("u%d", i)
		l.link("net", up, fmt.Sprintf("10.78.%d.1/24", i), gw, "ext", "")
		l.renumber(i, 2)
		l.in(gw, "ip", "link", "add", "lan", "type", "bridge")
		l.in(gw, "ip", "addr", "add", lan+"1/24", "dev", "lan")
		l.in(gw, "ip", "link", "set", "lan", "mtu", "9000", "up")
		for j, h := range hosts {
			port := fmt.Sprintf("p%d", j)
			l.link(gw, port, "", h, "eth0", fmt.Sprintf("%s%d/24", lan, 11+j))
			l.in(gw, "ip", "link", "set", port, "master", "lan")
			l.in(h, "ip", "route", "add", "default", "via", lan+"1")
		}
		// Other ports than those of the hosts: nobody reaches them at their own ones.
		l.in(gw, "nft", "add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; "+
			"add rule ip nat post oifname ext meta l4proto udp masquerade to :40000-49999; add rule ip nat post oifname ext masquerade")
	}
	t.Cleanup(func() { // the test's context has ended by then
		down := exec.Command("ip", "netns", "exec", l.prefix+"net", labProgram(l.t), "down", "--dir", filepath.Join(l.dir, "testbed"))
		if out, err := down.CombinedOutput(); err != nil {
			t.Errorf("take the network down: %v: %s", err, out)
		}
	})
	up := exec.Command("ip", "netns", "exec", l.prefix+"net", labProgram(t), "up", "--dir", filepath.Join(l.dir, "testbed"), "--subnet", "10.77.0.0/24",
		"--scion-bin", programs(), "--quiet", "two-paths")
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return l
}

func (l *natLab) run(c *exec.Cmd) {
	l.t.Helper()
	if out, err := c.CombinedOutput(); err != nil {
		l.t.Fatalf("%v: %v: %s", c.Args, err, out)
	}
}

func (l *natLab) ip(args ...string) { l.t.Helper(); l.run(exec.Command("ip", args...)) }

func (l *natLab) in(space string, args ...string) {
	l.t.Helper()
	l.ip(append([]string{"netns", "exec", l.prefix + space}, args...)...)
}

// link connects two namespaces.
func (l *natLab) link(a, aName, aIP, b, bName, bIP string) {
	l.t.Helper()
	l.in(a, "ip", "link", "add", aName, "type", "veth", "peer", "name", bName, "netns", l.prefix+b)
	for _, x := range [][3]string{{a, aName, aIP}, {b, bName, bIP}} {
		if x[2] != "" {
			l.in(x[0], "ip", "addr", "add", x[2], "dev", x[1])
		}
		l.in(x[0], "ip", "link", "set", x[1], "mtu", "9000", "up")
	}
}

// renumber gives a NAT another outer address. The kernel then drops its mappings.
func (l *natLab) renumber(i, last int) {
	l.t.Helper()
	gw := fmt.Sprintf("gw%d", i)
	l.in(gw, "ip", "addr", "flush", "dev", "ext")
	l.in(gw, "ip", "addr", "add", fmt.Sprintf("10.78.%d.%d/24", i, last), "dev", "ext")
	l.in(gw, "ip", "route", "add", "default", "via", fmt.Sprintf("10.78.%d.1", i))
}

func (l *natLab) command(space string, args ...string) *exec.Cmd {
	return exec.CommandContext(l.t.Context(), "ip", append([]string{"netns", "exec", l.prefix + space, l.program}, args...)...)
}

// scion are the flags for a host in an AS.
func (l *natLab) scion(as string) []string {
	return []string{"--config-dir", filepath.Join(l.dir, "testbed", "gen", "ISD1", "AS"+strings.ReplaceAll(as, ":", "_"))}
}

// start starts a command that prints JSON events, waits for the event "ready", and ends the command
// with the test. stop ends it earlier.
func (l *natLab) start(space string, args ...string) (stop func()) {
	l.t.Helper()
	c := l.command(space, args...)
	var log bytes.Buffer
	c.Stderr = &log
	out, err := c.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		l.t.Fatal(err)
	}
	stop = func() {
		if c.ProcessState == nil {
			_ = c.Process.Signal(os.Interrupt)
			_ = c.Wait()
		}
	}
	l.t.Cleanup(stop)
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.Contains(lines.Text(), `"ready"`) {
		stop()
		l.t.Fatalf("%v is not ready: %s%s", args, lines.Text(), log.Bytes())
	}
	go func() {
		for lines.Scan() {
		}
	}()
	return stop
}

// step of a download: data comes from the host over so many paths, and then something happens.
type step struct {
	host  string
	paths int
	then  func()
}

// download downloads the torrent so slowly that the steps come before its end, one after the other.
func (l *natLab) download(space, as, torrent, want string, steps ...step) {
	l.t.Helper()
	to := l.t.TempDir()
	args := append([]string{"download", "--json", "--sample", "100ms", "--dht", "off", "--download-rate", "2mbit", "-o", to}, l.scion(as)...)
	c := l.command(space, append(args, torrent)...)
	var log bytes.Buffer
	c.Stderr = &log
	out, err := c.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		l.t.Fatal(err)
	}
	defer time.AfterFunc(time.Until(await.Deadline(l.t)), func() { _ = c.Process.Signal(os.Interrupt) }).Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e struct {
			Paths []struct {
				Peer  string
				Bytes int64 `json:"bytes_read"`
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			l.t.Fatalf("%v: %s", err, lines.Text())
		}
		n := 0
		for _, p := range e.Paths {
			if len(steps) > 0 && p.Bytes > 0 && strings.Contains(p.Peer, "["+steps[0].host+"]") {
				n++
			}
		}
		if len(steps) > 0 && n >= steps[0].paths {
			steps[0].then()
			steps = steps[1:]
		}
	}
	if err := c.Wait(); err != nil {
		l.t.Fatalf("download: %v: %s", err, log.Bytes())
	}
	if len(steps) > 0 {
		l.t.Errorf("no data came from %s over %d paths", steps[0].host, steps[0].paths)
	}
	got, err := os.ReadFile(filepath.Join(to, "data"))
	if err != nil {
		l.t.Fatal(err)
	}
	if had, err := os.ReadFile(want); err != nil || !bytes.Equal(got, had) {
		l.t.Fatalf("another file than %s: %v", want, err)
	}
}

const (
	natTracker = "1-ff00:0:110,[10.77.0.1]:31080"
	natSize    = 4 << 20
)

// torrent makes a file and a torrent of it.
func (l *natLab) torrent() (torrent, file string) {
	l.t.Helper()
	file, torrent = filepath.Join(l.dir, "data"), filepath.Join(l.dir, "data.torrent")
	b := make([]byte, natSize)
	rand.NewChaCha8([32]byte{1}).Read(b)
	if err := os.WriteFile(file, b, 0o644); err != nil {
		l.t.Fatal(err)
	}
	l.run(l.command("net", "create", "--offline", "-o", torrent, "--tracker", "scion://"+natTracker+"/announce", file))
	return torrent, file
}

// TestNAT exchanges a file between hosts behind NATs in two ASes, over two border routers of each,
// in both directions. Meanwhile the NAT of each side gets another address.
func TestNAT(t *testing.T) {
	t.Parallel()
	l := startNATLab(t)
	torrent, file := l.torrent()
	l.start("net", append([]string{"tracker", "--json", "--listen", "scion://" + natTracker, "--local", "10.77.0.1"}, l.scion("ff00:0:110")...)...)
	seed := func(space, as, listen string, more ...string) func() {
		args := append([]string{"seed", "--json", "--data", l.dir, "--dht", "off", "--listen", listen, torrent}, l.scion(as)...)
		return l.start(space, append(args, more...)...)
	}

	stop := seed("b1", "ff00:0:111", "1-ff00:0:111,[192.168.2.11]:31000")
	l.download("a1", "ff00:0:110", torrent, file,
		step{"10.78.2.2", 2, func() { l.renumber(2, 3) }}, // the seed's NAT
		step{"10.78.2.3", 1, func() {}})
	stop()

	stop = seed("a1", "ff00:0:110", "1-ff00:0:110,[192.168.1.11]:31000")
	l.download("b1", "ff00:0:111", torrent, file,
		step{"10.78.1.2", 2, func() { l.renumber(2, 4) }}) // the leecher's NAT
	stop()

	// Hosts behind the same NAT find each other without a tracker, by local discovery.
	out := t.TempDir()
	alone := []string{"--no-trackers", "--lsd", "on", "--transport", "scion", "--transport", "tcp"}
	l.start("a2", append(append([]string{"download", "--json", "--dht", "off", "-o", out, "--listen", "1-ff00:0:110,[192.168.1.12]:31000", torrent},
		l.scion("ff00:0:110")...), alone...)...)
	seed("a1", "ff00:0:110", "1-ff00:0:110,[192.168.1.11]:31000", alone...)
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "hosts behind the same NAT to find each other", func() bool {
		got, err := os.ReadFile(filepath.Join(out, "data"))
		return err == nil && bytes.Equal(got, want)
	})
}
