// Package e2e tests braid's packages on real SCION networks: real routers, real control services,
// emulated links.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/scionnet/conformance"
	"braid/testbed"
	"braid/testbed/linkemu"
	"braid/units/await"
)

// patientBFD has a router give a neighbour up after 7.5 s. On a busy machine a router may get no
// processor for seconds, and a path that is revoked for that cannot be dialled for ten.
const patientBFD = 2500 * time.Millisecond

// programs is where scripts/build puts the SCION programs.
func programs() string {
	if dir := os.Getenv("BRAID_SCION_BIN"); dir != "" {
		return dir
	}
	return filepath.Join("..", "..", "bin", "scion")
}

// buildPrograms makes braid and braid-testbed, once for all tests, and returns their directory:
// scripts/test has built them already, and names braid in BRAID_PROGRAM.
var buildPrograms func() (string, error)

func run(m *testing.M) int {
	flag.Parse()
	if _, err := os.Stat("../../bin/scion/router"); err != nil && !testing.Short() && os.Getenv("BRAID_SCION_BIN") == "" {
		fmt.Fprintln(os.Stderr, "these tests start SCION networks: run ./scripts/build first, or go test -short")
		return 1
	}
	dir, err := os.MkdirTemp("", "braid-e2e-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	buildPrograms = sync.OnceValues(func() (string, error) {
		if built := os.Getenv("BRAID_PROGRAM"); built != "" {
			return filepath.Abs(filepath.Dir(built))
		}
		build := exec.Command("go", "build", "-o", dir, "braid/cmd/braid", "braid/cmd/braid-testbed")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build braid: %w: %s", err, out)
		}
		return dir, nil
	})
	var network *testbed.Network
	sharedNetwork = sync.OnceValues(func() (*testbed.Network, error) {
		topology, err := testbed.LoadTopology("two-paths")
		if err == nil {
			network, err = testbed.Start(context.Background(), testbed.Options{
				Topology: topology, Dir: filepath.Join(dir, "network"), SCIONBin: programs(), BFD: patientBFD,
			})
		}
		return network, err
	})
	defer func() {
		if network != nil {
			network.Close()
		}
	}()
	return m.Run()
}

// sharedNetwork starts a network of two paths, once for all tests that change nothing in it.
var sharedNetwork func() (*testbed.Network, error)

func twoPaths(t *testing.T) *testbed.Network {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	n, err := sharedNetwork()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func braidProgram(t *testing.T) string {
	t.Helper()
	return builtProgram(t, "braid")
}

// labProgram is the program braid-testbed.
func labProgram(t *testing.T) string {
	t.Helper()
	return builtProgram(t, "braid-testbed")
}

func builtProgram(t *testing.T, name string) string {
	t.Helper()
	dir, err := buildPrograms()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

func startNetwork(t *testing.T, topology string, opts testbed.Options) *testbed.Network {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	topo, err := testbed.LoadTopology(topology)
	if err != nil {
		t.Fatal(err)
	}
	opts.Topology, opts.Dir, opts.SCIONBin = topo, t.TempDir(), programs()
	n, err := testbed.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func ia(t *testing.T, s string) pathsel.IA {
	t.Helper()
	v, err := pathsel.ParseIA(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func openHost(t *testing.T, n *testbed.Network, ia pathsel.IA) *scionnet.Host {
	t.Helper()
	return openHostWith(t, n, ia, nil)
}

func openHostWith(t *testing.T, n *testbed.Network, ia pathsel.IA, log *slog.Logger) *scionnet.Host {
	t.Helper()
	h, err := scionnet.Open(t.Context(), scionnet.Config{ConfigDir: n.ConfigDir(ia), LocalIP: n.HostIP(ia), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func listen(t *testing.T, h *scionnet.Host) *scionnet.Endpoint {
	t.Helper()
	return listenWith(t, h, scionnet.ListenConfig{})
}

func listenWith(t *testing.T, h *scionnet.Host, cfg scionnet.ListenConfig) *scionnet.Endpoint {
	t.Helper()
	e, err := h.Listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// ends is two hosts of a network, in two ASes.
type ends struct {
	network *testbed.Network
	a, b    *scionnet.Host
	between int                   // the number of paths from a to b
	listen  scionnet.ListenConfig // of both
}

func (n ends) pair(t *testing.T) conformance.Pair {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
	defer cancel()
	var paths []pathsel.Path
	await.True(t, "all paths to "+n.b.IA().String(), func() bool { // an answer of a busy control service may lack some
		var err error
		if paths, err = n.a.Paths(ctx, n.b.IA()); err != nil && !errors.Is(err, scionnet.ErrNoPath) {
			t.Fatal(err)
		}
		revoked := func(p pathsel.Path) bool {
			_, is := n.a.Revoked(p)
			return is
		}
		return len(paths) == n.between && !slices.ContainsFunc(paths, revoked)
	})
	return conformance.Pair{Dialer: listenWith(t, n.a, n.listen), Acceptor: listenWith(t, n.b, n.listen), Paths: paths, Short: true}
}

func TestTwoPaths(t *testing.T) {
	t.Parallel()
	// With a lifetime, control services go on sending beacons every few seconds, for NewHopFields.
	network := startNetwork(t, "two-paths", testbed.Options{BFD: patientBFD, PathLifetime: 6 * time.Hour})
	n := ends{network: network, a: openHost(t, network, ia(t, "1-ff00:0:110")), b: openHost(t, network, ia(t, "1-ff00:0:111")), between: 2}
	t.Run("Paths", n.paths)
	t.Run("StaysOnItsPath", n.staysOnItsPath)
	t.Run("Conformance", func(t *testing.T) { conformance.Run(t, n.pair) })
	t.Run("AcceptorLearnsThePath", n.acceptorLearnsThePath)
	t.Run("ClientsAreProven", n.clientsAreProven)
	t.Run("FirstQueries", n.firstQueries)
	t.Run("NewHopFields", n.newHopFields)
	t.Run("Probe", n.probe)
	t.Run("StockTools", n.stockTools)
	t.Run("Cut", n.cut)
	t.Run("BlackHole", n.blackHole)
}

// TestDiamond runs the suite over segments of every kind: up, core, down, and a peering link; and
// from a host that uses scionproto's own library for packets to one that does not.
func TestDiamond(t *testing.T) {
	t.Parallel()
	network := startNetwork(t, "diamond", testbed.Options{BFD: patientBFD})
	n := ends{network: network, a: openHost(t, network, ia(t, "1-ff00:0:111")), b: openHost(t, network, ia(t, "2-ff00:0:211")), between: 7}
	t.Run("Conformance", func(t *testing.T) {
		conformance.Run(t, func(t *testing.T) conformance.Pair {
			p := n.pair(t)
			p.Dialer = listenWith(t, n.a, scionnet.ListenConfig{PlainPackets: true})
			return p
		})
	})
	t.Run("Databases", n.databases)
	t.Run("FirstAnswers", n.firstAnswers)
	t.Run("SilentControlService", n.silentControlService)
	t.Run("AcceptorLearnsThePath", n.acceptorLearnsThePath)
	for name, listen := range map[string]scionnet.ListenConfig{"EPIC": {}, "PlainEPIC": {PlainPackets: true}} {
		t.Run(name, func(t *testing.T) { n.epic(t, listen) })
	}
	t.Run("CutFarAway", n.cutFarAway)
}

// databases looks for the logs of databases that write ahead: control services read our options for
// SQLite.
func (n ends) databases(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join(n.network.ConfigDir(n.a.IA()), "*.db-wal"))
	if err != nil || len(logs) == 0 {
		t.Errorf("no database of %s writes ahead, %v", n.a.IA(), err)
	}
}

// firstAnswers asks as a new host, again and again: the first answer lists every path.
func (n ends) firstAnswers(t *testing.T) {
	busy := 0
	for answers := 0; answers < 20; answers++ {
		h, err := scionnet.Open(t.Context(), scionnet.Config{ConfigDir: n.network.ConfigDir(n.a.IA()), LocalIP: n.network.HostIP(n.a.IA())})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		paths, err := h.Paths(t.Context(), n.b.IA())
		took := time.Since(start)
		h.Close()
		if err == nil && len(paths) == n.between {
			continue
		}
		// On a busy machine a control service gives up asking others, after seconds. An answer that
		// lacks paths for another reason comes at once.
		if busy++; took < time.Second || busy > 10 || err != nil && !errors.Is(err, scionnet.ErrNoPath) {
			t.Fatalf("%d of %d paths after %v, %v", len(paths), n.between, took, err)
		}
		answers--
	}
}

// silentControlService asks a control service that takes connections and never answers. The lookup
// says so, instead of "no path" alone. The daemon in the process says it in its log only.
func (n ends) silentControlService(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(n.network.ConfigDir(n.a.IA()))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "topology.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var topology map[string]any
	if err := json.Unmarshal(text, &topology); err != nil {
		t.Fatal(err)
	}
	service := map[string]any{"cs": map[string]string{"addr": silent.Addr().String()}}
	topology["control_service"], topology["discovery_service"] = service, service
	if text, err = json.Marshal(topology); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := scionnet.Open(t.Context(), scionnet.Config{ConfigDir: dir, LocalIP: n.network.HostIP(n.a.IA())})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	paths, err := h.Paths(t.Context(), n.b.IA())
	if !errors.Is(err, scionnet.ErrNoPath) || !errors.Is(err, scionnet.ErrNoControl) {
		t.Errorf("%d paths, %v", len(paths), err)
	}
	// On a busy machine the real service, too, may be silent for so long that a lookup gives up.
	await.True(t, "an answer about an AS that does not exist", func() bool {
		_, err := n.a.Paths(t.Context(), ia(t, "2-ff00:0:999"))
		return errors.Is(err, scionnet.ErrNoPath) && !errors.Is(err, scionnet.ErrNoControl)
	})
}

// epic sends with EPIC from the first AS. Stock routers of the last two ASes of a path drop packets
// whose MACs are wrong, so the suite passes only if all are right.
func (n ends) epic(t *testing.T, listen scionnet.ListenConfig) {
	h, err := scionnet.Open(t.Context(), scionnet.Config{ConfigDir: n.network.ConfigDir(n.a.IA()), LocalIP: n.network.HostIP(n.a.IA()), EPIC: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	n.a = h
	pair := func(t *testing.T) conformance.Pair {
		p := n.pair(t)
		p.Dialer = listenWith(t, h, listen)
		return p
	}
	socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.network.HostIP(n.b.IA()), 31999)))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	d, err := h.OpenDatagrams(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	offered := 0
	for i, p := range pair(t).Paths {
		if !h.Details(p).EPIC {
			continue
		}
		offered++
		remote := scionnet.Addr{IA: n.b.IA(), Host: n.network.HostIP(n.b.IA()), Port: 31999}
		message := fmt.Sprintf("%c over path %d", 0x40, i)
		var b []byte
		await.True(t, "a packet over "+string(p.Fingerprint), func() bool { // one may be lost, or come twice
			if err := d.SendOver(t.Context(), []byte(message), remote, p); err != nil {
				t.Fatal(err)
			}
			_ = socket.SetReadDeadline(time.Now().Add(time.Second))
			b = make([]byte, 1500)
			size, err := socket.Read(b)
			b = b[:size]
			return err == nil && strings.HasSuffix(string(b), message)
		})
		if b[8] != 3 {
			t.Fatalf("over %s: % x", p.Fingerprint, b)
		}
	}
	if offered < 6 {
		t.Errorf("%d paths offer EPIC, want at least 6", offered)
	}
	conformance.Run(t, pair)
}

func (n ends) paths(t *testing.T) {
	for _, p := range n.pair(t).Paths {
		if len(p.Fingerprint) != 64 || p.Src != n.a.IA() || p.Dst != n.b.IA() || len(p.Interfaces) != 2 || p.MTU < 1400 {
			t.Errorf("path %+v", p)
		}
		if p.Latency != 10*time.Millisecond || !p.LatencyKnown || p.Bandwidth != 20_000_000 {
			t.Errorf("path %s: %v (%t), %d bit/s, want what the topology says", p.Fingerprint, p.Latency, p.LatencyKnown, p.Bandwidth)
		}
		if !p.Expiry.After(time.Now()) {
			t.Errorf("path %s ended at %v", p.Fingerprint, p.Expiry)
		}
	}
}

// link is the state of the first link of a path.
func (n ends) link(t *testing.T, p pathsel.Path) testbed.LinkStatus {
	t.Helper()
	links := n.network.Status(t.Context(), false).Links
	i := slices.IndexFunc(links, func(l testbed.LinkStatus) bool {
		return l.A.Interface == p.Interfaces[0] || l.B.Interface == p.Interfaces[0]
	})
	if i < 0 {
		t.Fatalf("no link at %s", p.Interfaces[0])
	}
	return links[i]
}

// traffic is what has crossed the first link of a path since the network started, both ways
// together.
func (n ends) traffic(t *testing.T, p pathsel.Path) (bytes uint64) {
	t.Helper()
	l := n.link(t, p)
	return l.A.Counters.Bytes + l.B.Counters.Bytes
}

func (n ends) staysOnItsPath(t *testing.T) {
	p := n.pair(t)
	const size = 1 << 20
	for i, path := range p.Paths {
		d, a := conformance.Connect(t, p, path)
		other := p.Paths[1-i]
		mine, others := n.traffic(t, path), n.traffic(t, other)
		for _, way := range []struct{ from, to *scionnet.Conn }{{d, a}, {a, d}} {
			sent := make(chan error, 1)
			go func() {
				_, err := way.from.Write(make([]byte, size))
				sent <- err
			}()
			if _, err := io.ReadFull(way.to, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
		}
		mine, others = n.traffic(t, path)-mine, n.traffic(t, other)-others
		// Beacons, BFD and lookups cross both links all the time, and the same number of them.
		if mine < 2*size || others > mine-2*size+size/8 {
			t.Errorf("path %d: %d bytes on its link, %d on the other, for %d both ways together", i, mine, others, 2*size)
		}
	}
}

func (n ends) acceptorLearnsThePath(t *testing.T) {
	p := n.pair(t)
	for _, path := range p.Paths {
		d, a := conformance.Connect(t, p, path)
		if !d.Proven() {
			t.Error("the AS of a peer that was dialled is not proven")
		}
		await.True(t, "the dialler's AS is proven", a.Proven)
		back := slices.Clone(path.Interfaces)
		slices.Reverse(back)
		await.True(t, "the acceptor's path has a fingerprint", func() bool { return a.Path().Fingerprint != "" })
		if got := a.Path(); !slices.Equal(got.Interfaces, back) {
			t.Errorf("acceptor believes to be on %v, want %v", got.Interfaces, back)
		}
	}
}

// clientsAreProven has a server wait for the proof of its client's AS, at the first request.
func (n ends) clientsAreProven(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
	defer cancel()
	open := func(h *scionnet.Host) *scionnet.HTTP {
		p, err := h.OpenHTTP(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	server, client := open(openHost(t, n.network, n.b.IA())), open(n.a) // a server that has not looked anything up
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, scionnet.ClientProven(r.Context(), time.Until(await.Deadline(t))))
		}), 0)
	}()
	transport := client.ClientOf(server.Addr(), "")
	defer transport.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://server/", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); string(body) != "true" || err != nil {
		t.Errorf("the client's AS is proven: %q, %v", body, err)
	}
	cancel()
	<-served
}

// cutFarAway takes a link away that is behind other ASes and another segment: their router's word
// comes back through all.
func (n ends) cutFarAway(t *testing.T) {
	p := n.pair(t)
	i := slices.IndexFunc(p.Paths, func(q pathsel.Path) bool { return len(q.Interfaces) >= 6 })
	if i < 0 {
		t.Fatal("no path over three links")
	}
	path := p.Paths[i]
	conformance.Connect(t, p, path)
	at := path.Interfaces[len(path.Interfaces)-2]
	down := func(is bool) {
		if err := n.network.SetLink(at, func(c *linkemu.Config) { c.Down = is }); err != nil {
			t.Fatal(err)
		}
	}
	down(true)
	defer down(false)
	ctx, stop := context.WithDeadline(t.Context(), await.Deadline(t))
	defer stop()
	go knock(ctx, p, path)
	await.True(t, "the host hears of the cut", func() bool {
		r, revoked := n.a.Revoked(path)
		return revoked && r.Interface == at
	})
}

// knock dials over a dead path until ctx ends, since something must be sent for a router to
// complain of. If a busy router notices a cut late, a connection over the path has ended by then.
func knock(ctx context.Context, p conformance.Pair, path pathsel.Path) {
	for ctx.Err() == nil {
		if c, err := p.Dialer.Dial(ctx, p.Acceptor.Addr(), path, nil); err == nil {
			c.Abort()
		}
		time.Sleep(10 * time.Millisecond) // paces the dialler, decides nothing
	}
}

// newHopFields renews the hop fields under live connections and goes on using them.
func (n ends) newHopFields(t *testing.T) {
	p := n.pair(t)
	ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
	defer cancel()
	path := p.Paths[0]
	d, a := conformance.Connect(t, p, path)
	echo(t, d, a)
	await.True(t, "a newer beacon", func() bool {
		if err := n.a.Refresh(ctx, n.b.IA()); err != nil {
			t.Fatal(err)
		}
		paths, err := n.a.Paths(ctx, n.b.IA())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(paths, func(q pathsel.Path) bool { return q.Fingerprint == path.Fingerprint })
		return i >= 0 && paths[i].Expiry.After(path.Expiry)
	})
	rtt := d.Stats().MinRTT
	for range 3 {
		echo(t, d, a)
		echo(t, a, d)
	}
	if got := d.Stats().MinRTT; got > rtt {
		t.Errorf("least round trip went from %v to %v: the connection took its path for a new one", rtt, got)
	}
}

func echo(t *testing.T, from, to *scionnet.Conn) {
	t.Helper()
	if _, err := from.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(to, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
}

func (n ends) probe(t *testing.T) {
	p := n.pair(t)
	await.True(t, "answers over all paths", func() bool { // one may be lost
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		probes, err := n.a.Probe(ctx, n.b.IA(), netip.Addr{}, p.Paths)
		if err != nil {
			t.Fatal(err)
		}
		alive := 0
		for i, r := range probes {
			if r.Status == scionnet.PathAlive {
				alive++
				if r.RTT < 20*time.Millisecond {
					t.Fatalf("path %d: %+v, but a round trip takes 20 ms", i, r)
				}
			}
		}
		return alive == len(p.Paths)
	})
}

// stockTools lets the tools of scionproto look at a braid host.
func (n ends) stockTools(t *testing.T) {
	if err := n.b.AnswerEcho(); err != nil {
		t.Fatal(err)
	}
	scion := filepath.Join(programs(), "scion")
	where := []string{"--config-dir", n.network.ConfigDir(n.a.IA()), "--local", n.network.HostIP(n.a.IA()).String()}
	run := func(args ...string) []byte {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), scion, append(args, where...)...).Output()
		if err != nil {
			var exit *exec.ExitError
			errors.As(err, &exit)
			t.Fatalf("scion %s: %v\n%s%s", strings.Join(args, " "), err, out, exit.Stderr)
		}
		return out
	}
	to := fmt.Sprintf("%s,%s", n.b.IA(), n.network.HostIP(n.b.IA()))
	if out := string(run("ping", to, "-c", "2", "--timeout", "10s")); !strings.Contains(out, "2 packets transmitted, 2 received") {
		t.Errorf("scion ping:\n%s", out)
	}

	var shown struct {
		Paths []struct {
			Fingerprint, Sequence string
			NextHop               string `json:"next_hop"`
			Status                string
			MTU                   int
		}
	}
	ours := n.pair(t).Paths
	// A busy control service can leave a path out of an answer.
	await.True(t, "scion showpaths lists as many paths as braid", func() bool {
		if err := json.Unmarshal(run("showpaths", n.b.IA().String(), "--format", "json", "--timeout", "30s"), &shown); err != nil {
			t.Fatal(err)
		}
		return len(shown.Paths) == len(ours)
	})
	for i, s := range shown.Paths {
		if !strings.HasPrefix(string(ours[i].Fingerprint), s.Fingerprint) || s.MTU != ours[i].MTU || s.NextHop != n.a.Details(ours[i]).NextHop || s.Status != "alive" {
			t.Errorf("path %d: scion showpaths says %+v, braid %+v", i, s, ours[i])
		}
	}
}

// cut takes a link away for which the routers have BFD: they say so, and the host hears it.
func (n ends) cut(t *testing.T) {
	p := n.pair(t)
	dead, live := p.Paths[0], p.Paths[1]
	d1, a1 := conformance.Connect(t, p, dead)
	d2, a2 := conformance.Connect(t, p, live)
	changes, cancel := n.a.Subscribe(n.b.IA())
	defer cancel()

	n.setDown(t, dead, true)
	ctx, stop := context.WithDeadline(t.Context(), await.Deadline(t))
	defer stop()
	go knock(ctx, p, dead)
	for {
		if r, revoked := n.a.Revoked(dead); revoked {
			if !slices.Contains(dead.Interfaces, r.Interface) {
				t.Errorf("revoked %s, which is not on the path", r.Interface)
			}
			break
		}
		select {
		case <-changes:
		case <-ctx.Done():
			t.Fatal("the host has not heard of the cut")
		}
		echo(t, d2, a2) // the other path is not disturbed
		echo(t, a2, d2)
	}
	if _, revoked := n.a.Revoked(live); revoked {
		t.Error("the other path is revoked, too")
	}
	await.True(t, "lookups leave the path out", func() bool {
		paths, err := n.a.Paths(ctx, n.b.IA())
		return err == nil && len(paths) == 1 && paths[0].Fingerprint == live.Fingerprint
	})
	stop()
	if _, err := io.Copy(io.Discard, d1); !errors.Is(err, scionnet.ErrSilent) {
		t.Errorf("dialler: error %v, want ErrSilent", err)
	}
	if _, err := io.Copy(io.Discard, a1); !errors.Is(err, scionnet.ErrSilent) {
		t.Errorf("acceptor: error %v, want ErrSilent", err)
	}
	echo(t, d2, a2)

	n.setDown(t, dead, false)
	await.True(t, "the link is back", func() bool {
		l := n.link(t, dead)
		return l.A.State == "up" && l.B.State == "up"
	})
	d1, a1 = conformance.Connect(t, n.pair(t), dead)
	echo(t, d1, a1)
}

// blackHole stops a link one way, and nobody says anything: the routers still see each other, for a
// while.
func (n ends) blackHole(t *testing.T) {
	p := n.pair(t)
	d, a := conformance.Connect(t, p, p.Paths[0])
	echo(t, d, a)
	if err := n.network.SetLink(p.Paths[0].Interfaces[0], func(c *linkemu.Config) { c.Loss = 1 }); err != nil {
		t.Fatal(err)
	}
	defer n.network.SetLink(p.Paths[0].Interfaces[0], func(c *linkemu.Config) { c.Loss = 0 })
	if _, err := d.Read(make([]byte, 1)); !errors.Is(err, scionnet.ErrSilent) {
		t.Errorf("dialler: error %v, want ErrSilent", err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, scionnet.ErrSilent) {
		t.Errorf("acceptor: error %v, want ErrSilent", err)
	}
}

func (n ends) setDown(t *testing.T, p pathsel.Path, down bool) {
	t.Helper()
	if err := n.network.SetLink(p.Interfaces[0], func(c *linkemu.Config) { c.Down = down }); err != nil {
		t.Fatal(err)
	}
}
