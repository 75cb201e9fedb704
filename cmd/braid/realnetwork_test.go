package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"braid/commands/program"
	"braid/node/bootstrap"
)

// inText names the test of each command and flag with a value in the text of docs/real-network.md.
var inText = map[string]string{
	"braid bootstrap --bootstrap URL": "TestBootstrap",
	"--bootstrap off":                 "TestBootstrap",
	"braid get -":                     "TestRealNetwork",
	"--key PHRASE":                    "TestRealNetwork",
	"--ratio 1":                       "TestRealNetwork",
	"--listen '1-ff00:0:111,[192.0.2.7]:31000' --listen :31000": "TestRealNetwork",
	"--nat auto":                  "TestRealNetwork",
	"--nat on":                    "TestRealNetwork",
	"--nat off":                   "TestRealNetwork",
	"masquerade to :FROM-TO":      "TestNAT",
	"--acl '- 1-ff00:0:112#1, +'": "TestHiddenPaths",
	"braid paths --json":          "TestHiddenPaths",
	"braid-testbed up":            "TestTutorial",
}

// realNetwork is a SCION network with the addresses of docs/real-network.md, but for 10.77.0.0/24
// instead of 192.0.2.0/24, since a testbed takes private addresses only:
//
//	net 10.77.0.0/24 ── home (NAT) ── here 192.168.1.11   in 1-ff00:0:110
//	                 └─ there 10.77.0.7                   in 1-ff00:0:111
//
// Each host has a directory for its user. The NAT answers DNS, as home routers do.
type realNetwork struct {
	net, home, here, there *localHost
	dirs                   map[*localHost]string
	bin                    string
}

func startRealNetwork(t *testing.T) *realNetwork {
	t.Helper()
	l := startLocalNet(t)
	for _, program := range []string{"nft", "dnsmasq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: run ./scripts/install-deps", program)
		}
	}
	space := func(name, ip string) *localHost {
		h := &localHost{l.prefix + "-" + name, ip}
		l.space(t, h.space)
		return h
	}
	n := &realNetwork{
		net: space("net", "10.77.0.1"), home: space("home", "192.168.1.1"), here: space("here", "192.168.1.11"), there: space("there", "10.77.0.7"),
		dirs: map[*localHost]string{}, bin: cloneForReader(t),
	}
	link := func(a *localHost, aName, aIP string, b *localHost, bName, bIP string) {
		ip(t, "-n", a.space, "link", "add", aName, "type", "veth", "peer", "name", bName, "netns", b.space)
		for _, x := range []struct{ space, name, ip string }{{a.space, aName, aIP}, {b.space, bName, bIP}} {
			if x.ip != "" {
				ip(t, "-n", x.space, "addr", "add", x.ip, "dev", x.name)
			}
			ip(t, "-n", x.space, "link", "set", x.name, "mtu", "9000", "up")
		}
	}
	link(n.net, "home", "198.51.100.1/24", n.home, "ext", "198.51.100.2/24")
	link(n.home, "lan", "192.168.1.1/24", n.here, "eth0", "192.168.1.11/24")
	link(n.net, "there", "", n.there, "eth0", "10.77.0.7/32")
	for _, r := range []struct {
		at    *localHost
		route string
	}{
		{n.net, "local 10.77.0.0/24 dev lo"}, {n.net, "10.77.0.7/32 dev there table local"}, {n.home, "default via 198.51.100.1"},
		{n.here, "default via 192.168.1.1"}, {n.there, "default dev eth0"},
	} {
		ip(t, append([]string{"-n", r.at.space, "route", "add"}, strings.Fields(r.route)...)...)
	}
	n.quick(t, n.home, "echo 1 > /proc/sys/net/ipv4/ip_forward")
	n.quick(t, n.home, "nft 'add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; "+
		"add rule ip nat post oifname ext meta l4proto udp masquerade to :40000-49999; add rule ip nat post oifname ext masquerade'")
	return n
}

// command is a line for bash on a host, in the directory of its user.
func (n *realNetwork) command(t *testing.T, at *localHost, line string) *exec.Cmd {
	t.Helper()
	if n.dirs[at] == "" {
		n.dirs[at] = t.TempDir()
	}
	c := at.run(t, exec.Command("bash", "-e", "-c", line))
	c.Dir = n.dirs[at]
	c.Env = append(os.Environ(), braidProcess+"=1", "HOME="+n.dirs[at], "SCION_DAEMON=", "PATH="+filepath.Join(n.bin, "bin")+":"+os.Getenv("PATH"))
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	return c
}

// quick runs a line that must succeed, and returns what it says.
func (n *realNetwork) quick(t *testing.T, at *localHost, line string) string {
	t.Helper()
	out, err := n.command(t, at, line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// until runs a line again and again until its output and exit code are as wanted: on a busy machine
// a router may answer too late.
func (n *realNetwork) until(t *testing.T, at *localHost, line string, wanted func(said string, code int) bool) (said string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s said:\n%s", line, said)
		}
	}()
	soon(t, line, func() bool {
		c := n.command(t, at, line)
		out, err := c.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		said = string(out)
		return wanted(said, c.ProcessState.ExitCode())
	})
	return said
}

// keep runs a line until stop is called, and waits until it says what is wanted.
func (n *realNetwork) keep(t *testing.T, at *localHost, line string, want *regexp.Regexp) (said string, stop func()) {
	t.Helper()
	c, out := n.command(t, at, "exec "+line), new(lockedBuffer)
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", line, out)
		}
	})
	t.Cleanup(stop)
	soon(t, line+": "+want.String(), func() bool { return want.MatchString(out.String()) })
	return out.String(), stop
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// sendLine is what braid send prints.
var sendLine = regexp.MustCompile(`(?m)^braid1\w+$`)

// withoutNumbers is a line with the same sign for all numbers and addresses.
func withoutNumbers(s string) string {
	return regexp.MustCompile(`[0-9][0-9a-f.:]*`).ReplaceAllString(s, "N")
}

// step is a command of the document, and what is done with it.
type step struct {
	line  string
	at    *localHost
	says  string // regular expression
	keeps bool   // it runs until the next chapter
	then  func() // afterwards; while it runs, if it keeps running
}

// Every command of docs/real-network.md runs on a host behind a NAT, and on its peer in another AS,
// with the stock routers and control services. A new command needs a step here, one in the text a
// test in inText.
func TestRealNetwork(t *testing.T) {
	t.Parallel()
	n := startRealNetwork(t)
	here, there := n.here, n.there
	state := n.net.testbed(t, t.TempDir(), "10.77.0.0/24")
	api := controlServiceAPI(t, state.ASes[0].ConfigDir)
	n.net.forward(t, bootstrap.DefaultPort, netip.MustParseAddr("10.77.0.1"), api)
	here.resolveAt(t, n.home.ip, "home.example")
	background(t, n.home.run(t, exec.Command("dnsmasq", "--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--pid-file", "--user=root",
		"--no-hosts", "--no-resolv", "--local=/example/", "--listen-address="+n.home.ip, "--bind-interfaces", "--host-record=scion.home.example,10.77.0.1",
		fmt.Sprintf("--srv-host=_sciondiscovery._tcp.home.example,scion.home.example,%d", bootstrap.DefaultPort))))
	n.quick(t, there, "braid bootstrap --bootstrap http://"+controlServiceAPI(t, state.ASes[1].ConfigDir).String())
	n.keep(t, n.net, "braid tracker --config-dir "+state.ASes[0].ConfigDir+" --listen 'scion://1-ff00:0:110,[10.77.0.1]:31080'", regexp.MustCompile("tracking on"))
	for _, h := range []*localHost{here, there} {
		n.quick(t, h, "mkdir results && head -c 3000000 /dev/urandom > results/data")
	}
	n.quick(t, here, "mkdir set && head -c 3000000 /dev/urandom > set/data && braid create --offline --tracker 'scion://1-ff00:0:110,[10.77.0.1]:31080/announce' set -o set.torrent")
	same := func(a, b string) {
		t.Helper()
		want, err := os.ReadFile(filepath.Join(n.dirs[here], a))
		if got, e := os.ReadFile(filepath.Join(n.dirs[there], b)); e != nil || err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d of %s: %v, %v", b, len(got), len(want), a, err, e)
		}
	}

	blocks := documentBlocks(t, "real-network.md")
	samples := slices.DeleteFunc(slices.Clone(blocks), func(b string) bool { return strings.HasPrefix(b, "braid ") })
	if len(samples) != 1 {
		t.Fatalf("%d blocks are no commands, want that of braid doctor: %q", len(samples), samples)
	}
	steps := []step{
		{line: "braid bootstrap --dry-run", at: here, says: `(?s)DNS SRV.*nothing is written`},
		{line: "braid bootstrap", at: here, says: "kept in"},
		{line: "braid bootstrap --bootstrap http://192.0.2.1:8041", at: here, says: "TRC ISD1-B1-S1, known"},

		{line: "braid send results", at: here, says: sendLine.String(), keeps: true},
		{line: "braid get braid1lkpohfiqdkt6dml2qf7... -o in", at: there, then: func() {
			same("results/data", "in/results/data")
			// In the text: ports and a key of one's own, an end, and a line that other users of the
			// host do not see.
			const line = "braid send results --key 'a phrase for two' --ratio 1 --listen '1-ff00:0:111,[10.77.0.7]:31000' --listen :31000"
			said, _ := n.keep(t, there, line, sendLine)
			n.quick(t, here, "echo "+strings.TrimSpace(sendLine.FindString(said))+" | braid get - -o from")
			same("from/results/data", "results/data")
		}},

		{line: "braid send --watch results", at: there, says: sendLine.String(), keeps: true},
		{line: "braid get braid1mfzwizlt... --follow -o in", at: here, says: "(?s).", keeps: true, then: func() {
			arrives := func() {
				soon(t, "the newest state", func() bool {
					return exec.Command("diff", "-r", filepath.Join(n.dirs[there], "results"), filepath.Join(n.dirs[here], "in", "results")).Run() == nil
				})
			}
			arrives()
			n.quick(t, there, "echo new > results/new")
			arrives()
		}},

		{line: "braid paths --probe 1-ff00:0:111", at: here, says: "(?s)Status: alive.*Status: alive", then: func() {
			const line = "braid paths --probe 1-ff00:0:111 --nat "
			for _, nat := range []string{"auto", "on"} {
				n.until(t, here, line+nat, func(said string, _ int) bool { return strings.Contains(said, "Status: alive") })
			}
			if out, _ := n.command(t, here, line+"off").CombinedOutput(); strings.Contains(string(out), "Status: alive") {
				t.Errorf("--nat off: %s", out)
			}
		}},
		{line: "braid seed --listen '1-ff00:0:110,[192.168.1.11]:31000' set.torrent", at: here, says: "ready, listening on", keeps: true, then: func() {
			n.quick(t, there, "cp "+filepath.Join(n.dirs[here], "set.torrent")+" .")
		}},
		{line: "braid download set.torrent", at: there, then: func() { same("set/data", "set/data") }},

		{line: "braid doctor", at: here, says: `a NAT shows this host as 198\.51\.100\.2:4\d{4}\n`, then: func() {
			// The sample of the document, with a port at which nobody listens.
			n.until(t, here, "braid doctor '1-ff00:0:111,[10.77.0.7]:31000'", func(said string, code int) bool {
				missing := func(line string) bool {
					return !strings.Contains(withoutNumbers(said), withoutNumbers(strings.TrimSpace(line)))
				}
				return code == program.Failed && !slices.ContainsFunc(strings.Split(samples[0], "\n"), missing)
			})
			_, stop := n.keep(t, there, "braid seed --listen '1-ff00:0:111,[10.77.0.7]:31000' set.torrent", regexp.MustCompile("ready, listening on"))
			t.Cleanup(stop)
		}},
		{line: "braid doctor '1-ff00:0:111,[192.0.2.7]:31000'", at: here, says: "target port: "},
		{line: "braid doctor --listen '1-ff00:0:110,[192.168.1.11]:31000' --tracker 'scion://1-ff00:0:110,[192.0.2.1]:31080/announce'", at: here, says: "(?m)^ok +tracker"},
	}
	done := map[string]bool{}
	key := ""
	for _, b := range blocks {
		var stops []func()
		for line := range strings.Lines(b) {
			line = strings.TrimSpace(regexp.MustCompile(`\s+# .*`).ReplaceAllString(line, ""))
			if b == samples[0] || line == "" {
				continue
			}
			i := slices.IndexFunc(steps, func(s step) bool { return s.line == line })
			if i < 0 {
				t.Fatalf("docs/real-network.md has a command that is not tried: %s", line)
			}
			s, says, said := steps[i], regexp.MustCompile(steps[i].says), ""
			done[line] = true
			run := strings.ReplaceAll(regexp.MustCompile(`braid1\w+\.\.\.`).ReplaceAllString(line, key), "192.0.2.", "10.77.0.")
			switch {
			case s.keeps:
				var stop func()
				said, stop = n.keep(t, s.at, run, says)
				stops = append(stops, stop)
			case s.says == "": // it transfers something, however long that takes
				said = n.quick(t, s.at, run)
			default:
				said = n.until(t, s.at, run, func(said string, code int) bool { return code == 0 && says.MatchString(said) })
			}
			if found := sendLine.FindString(said); found != "" {
				key = found
			}
			if s.then != nil {
				s.then()
			}
		}
		for _, stop := range stops {
			stop()
		}
	}
	for _, s := range steps {
		if !done[s.line] {
			t.Errorf("docs/real-network.md does not have the command %q", s.line)
		}
	}
}

// Each command in the text of docs/real-network.md has a test.
func TestRealNetworkText(t *testing.T) {
	text, err := os.ReadFile("../../docs/real-network.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := exec.Command("git", "-C", "../..", "grep", "--untracked", "-hoE", "^func Test[A-Za-z]+", "--", "*_test.go").Output()
	if err != nil {
		t.Skipf("not a clone: %v", err)
	}
	known := strings.Fields(strings.ReplaceAll(string(tests), "func ", ""))
	command := regexp.MustCompile(`^(braid \S+ \S|braid-testbed \S|--\S+ \S|masquerade )`)
	found := map[string]bool{}
	plain := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(string(text), "")
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(plain, -1) {
		span := strings.Join(strings.Fields(m[1]), " ")
		if !command.MatchString(span) {
			continue
		}
		found[span] = true
		if name, ok := inText[span]; !ok || !slices.Contains(known, name) {
			t.Errorf("docs/real-network.md names %q: inText has test %q, want one that there is", span, name)
		}
	}
	for span := range inText {
		if !found[span] {
			t.Errorf("docs/real-network.md does not name %q", span)
		}
	}
}
