package scionnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"
	"github.com/scionproto/scion/pkg/stun"

	"braid/units/await"
)

// TestQuestion asks a router over time. Each step is the time in milliseconds since the last
// answer, whether packets went out and came in since the step before, and whether the router is
// asked.
func TestQuestion(t *testing.T) {
	type step struct {
		at          int
		sent, heard bool
		ask         bool
	}
	for name, steps := range map[string][]step{
		"idle":              {{500, false, false, false}, {19_500, false, false, false}, {20_000, false, false, true}},
		"busy":              {{500, true, true, false}, {10_000, true, true, false}, {20_000, true, true, true}},
		"receiving only":    {{500, false, true, false}, {1000, false, true, false}, {1500, false, true, false}},
		"fell silent":       {{500, true, true, false}, {1000, true, false, false}, {1500, true, false, false}, {2000, true, false, true}},
		"silent, then not":  {{500, true, false, false}, {1000, true, true, false}, {1500, true, false, false}, {2000, true, true, false}},
		"one packet":        {{500, true, false, false}, {1000, false, false, false}, {1500, false, false, true}},
		"the router is off": {{20_000, false, false, true}, {20_400, true, false, false}, {20_500, true, false, true}, {21_400, true, false, false}, {21_500, true, false, true}, {23_400, true, false, false}, {23_500, true, false, true}},
	} {
		start := time.Unix(1000, 0)
		var q question
		q.answered(start)
		for i, s := range steps {
			if got := q.due(start.Add(time.Duration(s.at)*time.Millisecond), s.sent, s.heard); got != s.ask {
				t.Errorf("%s, step %d: asked %t, want %t", name, i, got, s.ask)
			}
		}
	}
}

// stunRouter answers STUN requests as an AS's router does, through a NAT that maps to natAddr.
type stunRouter struct {
	*net.UDPConn
	mu    sync.Mutex
	seen  netip.AddrPort // zero: there is no NAT
	mute  bool
	asked int

	others chan []byte // packets that are no STUN requests
}

func newSTUNRouter(t *testing.T) *stunRouter {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	r := &stunRouter{UDPConn: c, others: make(chan []byte, 1)}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			tx, err := stun.ParseBindingRequest(b[:n])
			if err != nil {
				select {
				case r.others <- bytes.Clone(b[:n]):
				default:
				}
				continue
			}
			r.mu.Lock()
			seen, mute := r.seen, r.mute
			r.asked++
			r.mu.Unlock()
			if !seen.IsValid() {
				seen = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
			}
			if !mute {
				_, _ = c.WriteToUDPAddrPort(stun.Response(tx, seen), from)
			}
		}
	}()
	return r
}

func (r *stunRouter) set(seen string, mute bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mute, r.seen = mute, netip.AddrPort{}
	if seen != "" {
		r.seen = netip.MustParseAddrPort(seen)
	}
}

func (r *stunRouter) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// hostBehind is a host in an AS with these routers.
func hostBehind(t *testing.T, mode NAT, log *slog.Logger, routers ...*stunRouter) *Host {
	t.Helper()
	return hostIn(t, t.TempDir(), mode, log, routers...)
}

func hostIn(t *testing.T, dir string, mode NAT, log *slog.Logger, routers ...*stunRouter) *Host {
	t.Helper()
	writeRouters(t, dir, routers...)
	if err := os.Mkdir(filepath.Join(dir, "certs"), 0o700); err != nil {
		t.Fatal(err)
	}
	h, err := Open(t.Context(), Config{ConfigDir: dir, LocalIP: netip.MustParseAddr("127.0.0.1"), NAT: mode, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	h.natWait = time.Minute // a busy machine answers late
	return h
}

// writeRouters writes the topology of an AS with these routers.
func writeRouters(t *testing.T, dir string, routers ...*stunRouter) {
	t.Helper()
	var text []string
	for i, r := range routers {
		text = append(text, fmt.Sprintf(`"br%d":{"internal_addr":%q,"interfaces":{"%d":{"isd_as":"1-ff00:0:111","mtu":1400,"link_to":"core",
			"underlay":{"local":"127.0.0.1:%d","remote":"127.0.0.1:%d"}}}}`, i, r.LocalAddr(), i+1, 40000+i, 41000+i))
	}
	topo := fmt.Sprintf(`{"isd_as":"1-ff00:0:110","mtu":1400,"dispatched_ports":"31000-39999","attributes":["core"],
		"control_service":{"cs1":{"addr":"127.0.0.1:30252"}},"border_routers":{%s}}`, strings.Join(text, ","))
	if err := os.WriteFile(filepath.Join(dir, "topology.json"), []byte(topo), 0o600); err != nil {
		t.Fatal(err)
	}
}

// cancelWriter cancels a context when something is logged.
type cancelWriter struct{ cancel context.CancelFunc }

func (w cancelWriter) Write(b []byte) (int, error) {
	w.cancel()
	return len(b), nil
}

// TestOpenCancelled ends the context at the moment of the routers' last answer. Without an error,
// the port would be open and never receive anything.
func TestOpenCancelled(t *testing.T) {
	router := newSTUNRouter(t)
	router.set("192.0.2.1:32001", false)
	ctx, cancel := context.WithCancel(t.Context())
	h := hostBehind(t, NATAuto, slog.New(slog.NewTextHandler(cancelWriter{cancel}, nil)), router)
	c, err := openPlain(ctx, h, 0)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err == nil {
		c.Close()
	}
}

// TestMapping follows the address of a port behind a NAT, for both packet connections.
func TestMapping(t *testing.T) {
	t.Parallel()
	for name, cfg := range packetConns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := newSTUNRouter(t), newSTUNRouter(t)
			one.set("192.0.2.1:32001", false)
			two.set("192.0.2.1:32001", false)
			h := hostBehind(t, NATAuto, nil, one, two)
			e := listen(t, h, cfg)
			if got, want := e.Addr().String(), "1-ff00:0:110,[192.0.2.1]:32001"; got != want {
				t.Errorf("address %s, want %s", got, want)
			}
			if got := e.LocalAddr().Host; got != netip.MustParseAddr("127.0.0.1") {
				t.Errorf("local address %s", got)
			}
			m := e.packets.mapper()
			through := func(r *stunRouter) Addr {
				w := &way{raw: []byte{1}, nextHop: r.LocalAddr().(*net.UDPAddr).AddrPort()}
				return m.source(e.addr, w)
			}
			if got := m.source(e.addr, &way{nextHop: netip.MustParseAddrPort("127.0.0.9:1")}); got != e.addr {
				t.Errorf("inside the AS packets come from %s", got)
			}
			moved := make(chan Addr, 2)
			m.setOnMove(func(router netip.AddrPort, now Addr) { moved <- now })

			// Packets leave, and nothing comes back: it asks, long before the renewal is due.
			one.set("192.0.2.1:32002", false)
			if got := through(one).Port; got != 32001 {
				t.Errorf("packets come from port %d", got)
			}
			if got := <-moved; got.Port != 32002 || through(one) != got {
				t.Errorf("moved to %s, packets come from %s", got, through(one))
			}
			if got := through(two).Port; got != 32001 {
				t.Errorf("packets through the other router come from port %d", got)
			}
		})
	}
}

// An AS gets another router and loses the first one. The host asks the new router without a restart.
func TestAddedRouter(t *testing.T) {
	t.Parallel()
	one, two := newSTUNRouter(t), newSTUNRouter(t)
	one.set("192.0.2.1:32001", false)
	two.set("192.0.2.2:32002", false)
	dir := t.TempDir()
	h := hostIn(t, dir, NATAuto, nil, one)
	e := listen(t, h, ListenConfig{})
	if got := e.Addr().Port; got != 32001 {
		t.Fatalf("address %s", e.Addr())
	}
	writeRouters(t, dir, two)
	awaitPort(t, h, e, 32002)
	w := &way{raw: []byte{1}, nextHop: two.LocalAddr().(*net.UDPAddr).AddrPort()}
	if got := e.packets.mapper().source(e.addr, w); got != e.Addr() {
		t.Errorf("packets through the new router come from %s", got)
	}
}

// awaitPort reloads the topology until routers see an endpoint at that port.
func awaitPort(t *testing.T, h *Host, e *Endpoint, port uint16) {
	t.Helper()
	await.True(t, "the answer of a new router", func() bool {
		notify(h.reread) // as every few seconds
		if err := h.loadInterfaces(t.Context()); err != nil {
			t.Fatal(err)
		}
		return e.Addr().Port == port
	})
}

// A host without a NAT gets routers behind one. All of its ports ask them.
func TestAddedNAT(t *testing.T) {
	t.Parallel()
	one, two, three := newSTUNRouter(t), newSTUNRouter(t), newSTUNRouter(t)
	dir := t.TempDir()
	h := hostIn(t, dir, NATAuto, nil, one)
	a, b := listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{})
	if a.Addr() != a.LocalAddr() || b.Addr() != b.LocalAddr() {
		t.Errorf("addresses %s and %s without a NAT", a.Addr(), b.Addr())
	}
	two.set("192.0.2.2:32002", false)
	three.set("192.0.2.2:32002", false)
	writeRouters(t, dir, one, two, three)
	awaitPort(t, h, a, 32002)
	awaitPort(t, h, b, 32002)
}

// TestNoNAT shows what a host without a NAT pays: one request to each router, once.
func TestNoNAT(t *testing.T) {
	t.Parallel()
	r := newSTUNRouter(t)
	h := hostBehind(t, NATAuto, nil, r)
	for range 3 {
		if e := listen(t, h, ListenConfig{}); e.packets.mapper().isOn() || e.Addr() != e.LocalAddr() {
			t.Errorf("%s is taken for %s", e.LocalAddr(), e.Addr())
		}
	}
	if n := r.count(); n != 1 {
		t.Errorf("%d requests for three ports, want 1", n)
	}
	off := newSTUNRouter(t)
	off.set("192.0.2.1:32001", false)
	if e := listen(t, hostBehind(t, NATOff, nil, off), ListenConfig{}); e.Addr() != e.LocalAddr() || off.count() != 0 {
		t.Errorf("asked %d times with NAT off", off.count())
	}
}

// TestMuteRouter opens ports in an AS whose router does not answer, and answers later.
func TestMuteRouter(t *testing.T) {
	t.Parallel()
	r := newSTUNRouter(t)
	r.set("192.0.2.1:32001", true)
	h := hostBehind(t, NATAuto, nil, r)
	h.natWait = natWait
	e := listen(t, h, ListenConfig{})
	if e.Addr() != e.LocalAddr() || e.packets.mapper() == nil {
		t.Errorf("address %s without an answer", e.Addr())
	}
	r.set("192.0.2.1:32001", false)
	if e := listen(t, h, ListenConfig{}); e.packets.mapper() == nil {
		t.Error("a later port does not ask")
	}
}

// TestNATPort maps a port outside of the AS's range: the log says what to do.
func TestNATPort(t *testing.T) {
	t.Parallel()
	r := newSTUNRouter(t)
	r.set("192.0.2.1:50000", false)
	var out strings.Builder
	listen(t, hostBehind(t, NATAuto, slog.New(slog.NewTextHandler(&out, nil)), r), ListenConfig{})
	if s := out.String(); !strings.Contains(s, "to port 50000") || !strings.Contains(s, "masquerade to :31000-39999") {
		t.Errorf("log: %s", s)
	}
}

// TestEchoBehindNAT pings a host at the address that the routers see. Its echo port is outside of the
// range of ports, as everywhere, and nobody is warned of that.
func TestEchoBehindNAT(t *testing.T) {
	t.Parallel()
	r := newSTUNRouter(t)
	r.set("192.0.2.1:30041", false)
	var out strings.Builder
	h := hostBehind(t, NATAuto, slog.New(slog.NewTextHandler(&out, nil)), r)
	h.localIP = netip.MustParseAddr("127.0.0.141") // whose echo port is free
	if err := h.AnswerEcho(); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); strings.Contains(s, "level=WARN") {
		t.Errorf("log: %s", s)
	}
	us := snet.SCIONAddress{IA: addr.IA(h.ia), Host: addr.HostIP(netip.MustParseAddr("192.0.2.1"))}
	p := snet.Packet{PacketInfo: snet.PacketInfo{
		Source:      snet.SCIONAddress{IA: peerIA, Host: addr.HostIP(netip.MustParseAddr("10.0.0.3"))},
		Destination: us, Payload: snet.SCMPEchoRequest{Identifier: 1, SeqNumber: 2},
		Path: snetpath.SCION{Raw: rawPath(t, true, segment{true, false, 1000, [][2]uint16{{0, 81}, {1, 0}}})},
	}}
	if err := p.Serialize(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WriteToUDPAddrPort(p.Bytes, netip.AddrPortFrom(h.localIP, shimPort)); err != nil {
		t.Fatal(err)
	}
	answer := snet.Packet{Bytes: <-r.others}
	if err := answer.Decode(); err != nil {
		t.Fatal(err)
	}
	if m, ok := answer.Payload.(snet.SCMPEchoReply); !ok || m.SeqNumber != 2 || answer.Source != us {
		t.Errorf("answer %v from %s", answer.Payload, answer.Source)
	}
}

// FuzzSTUN has a router send anything. Only an answer to the last request counts.
func FuzzSTUN(f *testing.F) {
	tx := stun.TxID{1}
	f.Add(stun.Response(tx, netip.MustParseAddrPort("192.0.2.1:32001")))
	f.Add(stun.Response(tx, netip.MustParseAddrPort("[2001:db8::1]:32001")))
	f.Add(stun.Request(tx))
	router := netip.MustParseAddrPort("127.0.0.1:30042")
	f.Fuzz(func(t *testing.T, b []byte) {
		x := &mapping{router: router}
		m := &mapper{local: mustAddr(t, "1-1,[10.0.0.1]:1000")}
		m.mappings.Store(&[]*mapping{x})
		a, ok := m.parse(b, router)
		if ok && (!a.at.Addr().Is4() || a.at.Port() == 0 || a.of != x) {
			t.Errorf("%x gives %v", b, a)
		}
		if _, ok := m.parse(b, netip.MustParseAddrPort("127.0.0.2:30042")); ok {
			t.Error("anybody may answer")
		}
	})
}

// Inside an AS no router sees a peer, so its word about a new address leads nowhere: it could name
// a service of this machine.
func TestNobodyMovesInsideTheAS(t *testing.T) {
	h := oneAS(t)
	c, peer := pair(t, listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{}))
	peer.quic.CloseWithError(codeMoved, "1-ff00:0:110,[127.0.0.1]:53")
	<-c.quic.Context().Done()
	if to, moved := c.MovedTo(); moved {
		t.Errorf("the peer is looked for at %s", to)
	}
}
