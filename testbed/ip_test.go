package testbed

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"braid/pathsel"
	"braid/testbed/linkemu"
)

// asHost lets this program stand for braid-testbed, and for what runs on a host. It tells whether it did.
func asHost(args []string) (ran bool, err error) {
	switch {
	case len(args) > 6 && args[0] == "host":
		mtu, _ := strconv.Atoi(args[4])
		return true, RunInNamespace(netip.MustParsePrefix(args[2]), mtu, args[6:])
	case len(args) == 2 && args[0] == "serve":
		return true, serveBytes(args[1])
	case len(args) == 3 && args[0] == "fetch":
		return true, fetchBytes(args[1], args[2])
	}
	return false, nil
}

func bytesToServe(size string) []byte {
	n, _ := strconv.Atoi(size)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return b
}

func serveBytes(size string) error {
	l, err := net.Listen("tcp4", ":7000")
	if err != nil {
		return err
	}
	fmt.Println("ready")
	c, err := l.Accept()
	if err != nil {
		return err
	}
	_, err = c.Write(bytesToServe(size))
	return errors.Join(err, c.Close())
}

func fetchBytes(from, size string) error {
	c, err := net.Dial("tcp4", from+":7000")
	if err != nil {
		return err
	}
	b, err := io.ReadAll(c)
	if err == nil && sha256.Sum256(b) != sha256.Sum256(bytesToServe(size)) {
		err = fmt.Errorf("%d bytes, or other ones", len(b))
	}
	return err
}

// needHosts skips where network devices cannot be made.
func needHosts(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no hosts on IP here: %v", err)
	}
	f.Close()
}

// Unmodified TCP between two hosts takes the emulated links: all of them, their rate, and nothing
// else.
func TestIPHosts(t *testing.T) {
	t.Parallel()
	needHosts(t)
	topo, err := ParseTopology("chain.topo", strings.NewReader(`
ASes:
  "1-ff00:0:110": {core: true, voting: true, authoritative: true, issuing: true}
  "1-ff00:0:111": {core: true, cert_issuer: 1-ff00:0:110}
  "1-ff00:0:112": {core: true, cert_issuer: 1-ff00:0:110}
links:
  - {a: "1-ff00:0:110#1", b: "1-ff00:0:111#1", linkAtoB: CORE, rate: 16mbit, delay: 2ms}
  - {a: "1-ff00:0:111#2", b: "1-ff00:0:112#1", linkAtoB: CORE, rate: 8mbit, delay: 2ms, mtu: 1300}
  - {a: "1-ff00:0:110#3", b: "1-ff00:0:111#3", linkAtoB: CORE, rate: 8mbit}
`))
	if err != nil {
		t.Fatal(err)
	}
	n, err := Start(t.Context(), Options{Topology: topo, Dir: t.TempDir(), LinksOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ip := n.IP()
	if ip.MTU() != 1300 {
		t.Errorf("MTU %d", ip.MTU())
	}
	a, b := topo.ASes[0].IA, topo.ASes[2].IA
	for _, tt := range []struct {
		src, dst pathsel.IA
		want     string
	}{
		{a, b, "[1-ff00:0:110#1 1-ff00:0:111#2]"}, {b, a, "[1-ff00:0:112#1 1-ff00:0:111#1]"}, {a, a, "[]"}, {0, b, "[]"},
	} {
		if got, err := ip.Route(tt.src, tt.dst); err != nil || fmt.Sprint(got) != tt.want {
			t.Errorf("%s to %s: %v, %v, want %s", tt.src, tt.dst, got, err, tt.want)
		}
	}
	if _, err := ip.Route(a, b+1); err == nil {
		t.Error("a route to an AS that is not there")
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := NewLauncher()
	defer l.Close()
	start := func(ia pathsel.IA, args ...string) (*IPHost, *exec.Cmd, *bytes.Buffer, io.Reader) {
		h := ip.AddHost(ia)
		cmd, err := h.Command(self, self, args...)
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = l.Start(cmd)
		}
		if err == nil {
			err = h.Connect(cmd)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, said.String())
		}
		return h, cmd, &said, out
	}
	const size = 1 << 20
	server, serving, saidServer, out := start(a, "serve", fmt.Sprint(size))
	if _, err := io.ReadFull(out, make([]byte, len("ready"))); err != nil {
		t.Fatalf("%v: %s", err, saidServer)
	}
	began := time.Now()
	client, fetching, said, _ := start(b, "fetch", server.Addr().String(), fmt.Sprint(size))
	if err := fetching.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if took, least := time.Since(began), time.Duration(size*8/8e6*float64(time.Second)); took < least {
		t.Errorf("took %v, the links allow %v", took, least)
	}
	if err := serving.Wait(); err != nil {
		t.Errorf("%v: %s", err, saidServer)
	}
	in, outBytes := client.Traffic()
	if in < size || outBytes == 0 {
		t.Errorf("%d bytes in, %d out", in, outBytes)
	}
	for i, want := range []bool{true, true, false} {
		c := n.Glance().Links[i]
		if used := c.A.Counters.Bytes > size; used != want {
			t.Errorf("link %d: %d bytes", i, c.A.Counters.Bytes)
		}
	}
	for _, h := range []*IPHost{server, client} {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The MTU of hosts follows the links as they are, not as they were when the network started.
func TestIPMTU(t *testing.T) {
	topo, err := ShippedTopology("two-paths")
	if err != nil {
		t.Fatal(err)
	}
	topo.Links[0].Config.MTU = 1350
	n, err := Start(t.Context(), Options{Topology: topo, Dir: t.TempDir(), LinksOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if mtu := n.IP().MTU(); mtu != 1350 {
		t.Errorf("MTU %d at the start", mtu)
	}
	if err := n.SetLink(topo.Links[0].A.Interface, func(c *linkemu.Config) { c.MTU = 1300 }); err != nil {
		t.Fatal(err)
	}
	if mtu := n.IP().MTU(); mtu != 1300 {
		t.Errorf("MTU %d after a change of a link", mtu)
	}
}

// A host whose program is missing, or ends at once, says so and leaves nothing behind.
func TestIPHostThatFails(t *testing.T) {
	needHosts(t)
	topo, err := ShippedTopology("two-paths")
	if err != nil {
		t.Fatal(err)
	}
	n, err := Start(t.Context(), Options{Topology: topo, Dir: t.TempDir(), LinksOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	h := n.IP().AddHost(topo.ASes[0].IA)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := h.Command(self, "no-such-program")
	if err != nil {
		t.Fatal(err)
	}
	l := NewLauncher()
	defer l.Close()
	if err := l.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := h.Connect(cmd); err == nil {
		t.Error("a device of a host without a program")
	}
	if err := cmd.Wait(); err == nil {
		t.Error("no error")
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// Packets from a device are whatever a program likes to send.
func FuzzIPPacket(f *testing.F) {
	p := make([]byte, 60)
	p[0], p[3] = 0x45, 60
	copy(p[16:], []byte{10, 66, 0, 2})
	f.Add(p)
	f.Add(slices.Clone(p[:20]))
	f.Add([]byte{0x60})
	x := &IPNetwork{network: &Network{opts: Options{}}, mtu: 1500, hosts: map[netip.Addr]*IPHost{}, next: ipSubnet.Addr().Next(), routes: map[Pair][]hop{}}
	a, b := x.AddHost(0), x.AddHost(0)
	l, err := linkemu.New(linkemu.Endpoint{Local: netip.MustParseAddrPort("127.0.0.1:0"), Router: netip.MustParseAddrPort("127.0.0.1:9")},
		linkemu.Endpoint{Local: netip.MustParseAddrPort("127.0.0.1:0"), Router: netip.MustParseAddrPort("127.0.0.1:9")}, linkemu.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close() })
	x.network.links = []*linkemu.Link{l}
	f.Fuzz(func(t *testing.T, p []byte) {
		before, _ := b.Traffic()
		a.send(p)
		if after, _ := b.Traffic(); after < before {
			t.Error("less than before")
		}
		x.forward([]hop{{0, linkemu.A}}, p, b)
	})
}
