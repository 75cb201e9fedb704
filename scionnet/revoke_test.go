package scionnet

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/daemon"
	"github.com/scionproto/scion/pkg/private/common"
	"github.com/scionproto/scion/pkg/private/ctrl/path_mgmt"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"

	"braid/pathsel"
	"braid/units/await"
)

// revocations is a control plane that only receives revocations.
type revocations struct {
	daemon.Connector
	mu       sync.Mutex
	reported []pathsel.Interface
}

func (r *revocations) RevNotification(_ context.Context, rev *path_mgmt.RevInfo) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reported = append(r.reported, pathsel.Interface{IA: pathsel.IA(rev.RawIsdas), ID: uint64(rev.IfID)})
	return nil
}

const (
	usIA, otherIA, peerIA = 1<<48 | 1, 1<<48 | 2, 1<<48 | 3
)

// hostWithPath is a host in usIA with one known path to peerIA: us#41 - 51#other#61 - 81#peer.
func hostWithPath(t testing.TB, c *controlPlane) (*Host, *revocations, found) {
	t.Helper()
	p := pathsel.Path{Src: usIA, Dst: peerIA, MTU: 1400, Expiry: time.Now().Add(time.Hour), Interfaces: []pathsel.Interface{
		{IA: usIA, ID: 41}, {IA: otherIA, ID: 51}, {IA: otherIA, ID: 61}, {IA: peerIA, ID: 81},
	}}
	raw := rawPath(t, false, segment{true, false, 1000, [][2]uint16{{0, 41}, {51, 61}, {81, 0}}})
	f := found{path: p, trail: trailOf(p.Interfaces), way: &way{raw: raw, expiry: p.Expiry}}
	c.paths = []found{f}
	daemon := &revocations{}
	h := &Host{cfg: Config{NAT: NATOff}, ia: usIA, localIP: netip.MustParseAddr("10.0.0.1"), log: slog.New(slog.DiscardHandler), connector: daemon}
	h.routes = testRoutes()
	h.lookup = newLookup(c.query, h.routes.learn, h.routes.inUse, h.log)
	h.claims = h.newClaims()
	t.Cleanup(h.lookup.close)
	return h, daemon, f
}

// scmpCase is a host with a connection to a peer, and an SCMP message from a router on the path.
type scmpCase struct {
	h        *Host
	us, peer Addr
	f        found
	r        *route
	message  snet.Packet
	from     netip.AddrPort
}

// newSCMPCase makes a message from otherIA. about makes its payload from the quote.
func newSCMPCase(t testing.TB, h *Host, f found, about func(quote []byte) snet.Payload) *scmpCase {
	t.Helper()
	w := &scmpCase{h: h, f: f, from: router,
		us: Addr{usIA, netip.MustParseAddr("10.0.0.1"), 1000}, peer: Addr{peerIA, netip.MustParseAddr("10.0.0.3"), 2000}}
	f.way.nextHop = router
	w.r = h.routes.dial(w.peer, f.trail, f.way)
	w.message = snet.Packet{PacketInfo: snet.PacketInfo{
		Source:      snet.SCIONAddress{IA: otherIA, Host: addr.HostIP(netip.MustParseAddr("10.0.0.99"))},
		Destination: snet.SCIONAddress{IA: usIA, Host: addr.HostIP(w.us.Host)},
		Path:        w.back(t, f.way.raw),
		Payload:     about(w.quote(t, w.us, w.peer, f.way.raw)),
	}}
	return w
}

func (w *scmpCase) quote(t testing.TB, from, to Addr, raw []byte) []byte {
	return packet(t, from, to, snetpath.SCION{Raw: bytes.Clone(raw)}, make([]byte, 1280))
}

// back is the path of a received answer.
func (w *scmpCase) back(t testing.TB, raw []byte) snet.RawPath {
	t.Helper()
	d, err := decodePath(raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reverse(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, d.Len())
	if err := d.SerializeTo(b); err != nil {
		t.Fatal(err)
	}
	return snet.RawPath{PathType: scion.PathType, Raw: b}
}

// edited is a copy of a path with changes.
func edited(t testing.TB, raw []byte, change func(*scion.Decoded)) []byte {
	t.Helper()
	d, err := decodePath(raw)
	if err != nil {
		t.Fatal(err)
	}
	change(d)
	b := make([]byte, d.Len())
	if err := d.SerializeTo(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// onTheWay is a quoted path as the router of otherIA sees it: at another hop, with another segment
// identifier.
func onTheWay(d *scion.Decoded) {
	d.PathMeta.CurrHF = 1
	d.InfoFields[0].SegID ^= 0x1234
}

// otherMAC has the same links, but other hop fields.
func otherMAC(d *scion.Decoded) { d.HopFields[1].Mac[0] ^= 1 }

// forgeries are changes that make a message incredible, whatever it says.
var forgeries = map[string]func(t testing.TB, w *scmpCase){
	"somebody else's packet": func(t testing.TB, w *scmpCase) {
		w.requote(w.quote(t, Addr{usIA, netip.MustParseAddr("10.0.0.2"), 1000}, w.peer, w.f.way.raw))
	},
	"another AS's packet": func(t testing.TB, w *scmpCase) {
		w.requote(w.quote(t, Addr{otherIA, w.us.Host, 1000}, w.peer, w.f.way.raw))
	},
	"from another port": func(t testing.TB, w *scmpCase) {
		w.requote(w.quote(t, Addr{usIA, w.us.Host, 1001}, w.peer, w.f.way.raw))
	},
	"to another port": func(t testing.TB, w *scmpCase) {
		w.requote(w.quote(t, w.us, Addr{peerIA, w.peer.Host, 2001}, w.f.way.raw))
	},
	"to another AS": func(t testing.TB, w *scmpCase) {
		w.requote(w.quote(t, w.us, Addr{otherIA, w.peer.Host, 2000}, w.f.way.raw))
	},
	"other hop fields": func(t testing.TB, w *scmpCase) {
		w.requote(w.quote(t, w.us, w.peer, edited(t, w.f.way.raw, otherMAC)))
	},
	"the path back": func(t testing.TB, w *scmpCase) {
		w.requote(w.quote(t, w.us, w.peer, w.back(t, w.f.way.raw).Raw))
	},
	"a quote cut off in the header": func(t testing.TB, w *scmpCase) {
		w.requote(w.quote(t, w.us, w.peer, w.f.way.raw)[:30])
	},
	"a quote cut off before the ports": func(t testing.TB, w *scmpCase) {
		w.requote(w.quote(t, w.us, w.peer, w.f.way.raw)[:w.f.way.headerLen(w.us, w.peer)-udpHeader])
	},
	"an AS off the path": func(_ testing.TB, w *scmpCase) { w.message.Source.IA = otherIA + 5 },
	"a neighbour":        func(_ testing.TB, w *scmpCase) { w.from = netip.MustParseAddrPort("10.0.0.66:30041") },
	"no path":            func(_ testing.TB, w *scmpCase) { w.message.Path = snet.RawPath{} },
	"along other links": func(t testing.TB, w *scmpCase) {
		w.message.Path = w.back(t, rawPath(t, false, segment{true, false, 1000, [][2]uint16{{0, 41}, {51, 0}}}))
	},
	"a connection that has ended": func(_ testing.TB, w *scmpCase) { w.h.routes.unpin(w.r) },
}

// requote replaces the quote in the message.
func (w *scmpCase) requote(quote []byte) {
	switch m := w.message.Payload.(type) {
	case snet.SCMPExternalInterfaceDown:
		m.Payload = quote
		w.message.Payload = m
	case snet.SCMPInternalConnectivityDown:
		m.Payload = quote
		w.message.Payload = m
	case snet.SCMPPacketTooBig:
		m.Payload = quote
		w.message.Payload = m
	}
}

// honest are changes after which a message is still credible.
var honest = map[string]func(t testing.TB, w *scmpCase){
	"as sent": func(testing.TB, *scmpCase) {},
	"as a router on the way sees it": func(t testing.TB, w *scmpCase) {
		w.requote(w.quote(t, w.us, w.peer, edited(t, w.f.way.raw, onTheWay)))
	},
	"a quote cut off behind the ports": func(t testing.TB, w *scmpCase) {
		w.requote(w.quote(t, w.us, w.peer, w.f.way.raw)[:w.f.way.headerLen(w.us, w.peer)])
	},
	"by this host's shim": func(_ testing.TB, w *scmpCase) { w.from = netip.AddrPortFrom(w.us.Host, shimPort) },
	"from another port of the router": func(_ testing.TB, w *scmpCase) {
		w.from = netip.AddrPortFrom(router.Addr(), 1)
	},
	"about hop fields that have just been renewed": func(t testing.TB, w *scmpCase) {
		w.h.routes.learn(peerIA, []found{{trail: w.f.trail, way: &way{
			raw: edited(t, w.f.way.raw, otherMAC), nextHop: router, expiry: w.f.way.expiry.Add(time.Hour),
		}}})
	},
}

func TestInterfaceDown(t *testing.T) {
	want := pathsel.Interface{IA: otherIA, ID: 61}
	external := func(q []byte) snet.Payload {
		return snet.SCMPExternalInterfaceDown{IA: otherIA, Interface: 61, Payload: q}
	}
	about := func(ia addr.IA, id uint64) func(q []byte) snet.Payload {
		return func(q []byte) snet.Payload { return snet.SCMPExternalInterfaceDown{IA: ia, Interface: id, Payload: q} }
	}
	try := func(name string, about func([]byte) snet.Payload, change func(testing.TB, *scmpCase), heard bool) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c controlPlane
				h, daemon, f := hostWithPath(t, &c)
				changes, cancel := h.Subscribe(peerIA)
				defer cancel()
				<-changes // the path is known now
				w := newSCMPCase(t, h, f, about)
				change(t, w)
				time.Sleep(5 * time.Minute) // lookups are rare by then
				c.asks()
				h.scmp(&w.message, w.us, w.from)
				synctest.Wait()
				r, revoked := h.Revoked(f.path)
				if revoked != heard {
					t.Fatalf("revoked: %t, want %t", revoked, heard)
				}
				if !heard {
					if len(daemon.reported) != 0 {
						t.Errorf("the daemon got %v", daemon.reported)
					}
					return
				}
				<-changes
				if r.Interface != want || len(daemon.reported) != 1 || daemon.reported[0] != want {
					t.Errorf("revoked %v, the daemon got %v, want %v", r.Interface, daemon.reported, want)
				}
				if c.asks() != 1 {
					t.Error("the destination was not looked up again at once")
				}
				time.Sleep(revokedFor + time.Second)
				if c.asks() == 0 {
					t.Error("the destination was not looked up again after the revocation")
				}
			})
		})
	}
	for name, change := range honest {
		try(name, external, change, true)
	}
	for name, change := range forgeries {
		try(name, external, change, false)
	}
	none := func(testing.TB, *scmpCase) {}
	try("internal", func(q []byte) snet.Payload {
		return snet.SCMPInternalConnectivityDown{IA: otherIA, Ingress: 51, Egress: 61, Payload: q}
	}, none, true)
	try("interface off the path", about(otherIA, 62), none, false)
	try("interface of an AS off the path", about(otherIA+5, 61), none, false)
	try("interface of another AS on the path", about(peerIA, 81), none, false)
}

// FuzzPacket handles packets as the socket of a host with a connection does. Each must give a
// payload with a route, or nothing. An SCMP message must only have effects that concern the path
// and an AS on it.
func FuzzPacket(f *testing.F) {
	us := Addr{usIA, netip.MustParseAddr("10.0.0.1"), 1000}
	peer := Addr{peerIA, netip.MustParseAddr("10.0.0.3"), 2000}
	host := func(t testing.TB) (*Host, *revocations, found) {
		var cp controlPlane
		h, daemon, f := hostWithPath(t, &cp)
		if _, err := h.lookup.paths(t.Context(), peerIA); err != nil {
			t.Fatal(err)
		}
		f.way.nextHop = router
		h.routes.dial(peer, f.trail, f.way)
		return h, daemon, f
	}
	// take does what the reader of the socket does. acted tells whether an SCMP message was
	// believed.
	take := func(t testing.TB, b []byte) (acted bool) {
		h, daemon, f := host(t)
		c := &plainConn{raw: &rawConn{host: h, local: us}}
		c.in.Bytes = b
		if err := c.in.Decode(); err != nil {
			return false
		}
		if _, scmp := c.in.Payload.(snet.SCMPPayload); scmp {
			h.scmp(&c.in, us, router)
			r, revoked := h.Revoked(f.path)
			mtu := h.withKnownMTU(f.path, peer, f.trail).MTU
			h.lookup.close()
			if revoked && (!slices.Contains(f.path.Interfaces, r.Interface) || addr.IA(r.Interface.IA) != c.in.Source.IA) {
				t.Errorf("%s has revoked %s", c.in.Source, r.Interface)
			}
			if len(daemon.reported) > 0 != revoked || len(h.lookup.revoked) > 0 != revoked {
				t.Errorf("the daemon got %v, the table has %v, and the path is revoked: %t", daemon.reported, h.lookup.revoked, revoked)
			}
			if mtu < leastPacket+f.way.headerLen(us, peer) {
				t.Errorf("an MTU of %d bytes is believed", mtu)
			}
			return revoked || mtu != f.path.MTU
		}
		payload, r := c.parse()
		if r != nil && (len(payload) > len(b) || h.routes.forAddr(r.pseudo) != r || !r.remote.Host.IsValid()) {
			t.Errorf("%d bytes of payload in %d, route %+v", len(payload), len(b), r)
		}
		return false
	}
	f.Add(packet(f, Addr{usIA, peer.Host, peer.Port}, us, snetpath.Empty{}, []byte("hello")))
	f.Add(packet(f, peer, us, snetpath.SCION{Raw: rawPath(f, true, up, core)}, []byte("hello")))
	f.Add(packet(f, peer, us, epicWay(f).dataplane(rawPath(f, true, up, core)), []byte("hello")))
	for name, about := range map[string]func(q []byte) snet.Payload{
		"external": func(q []byte) snet.Payload {
			return snet.SCMPExternalInterfaceDown{IA: otherIA, Interface: 61, Payload: q}
		},
		"internal": func(q []byte) snet.Payload {
			return snet.SCMPInternalConnectivityDown{IA: otherIA, Ingress: 51, Egress: 61, Payload: q}
		},
		"too big":     func(q []byte) snet.Payload { return snet.SCMPPacketTooBig{MTU: 1320, Payload: q} },
		"unreachable": func(q []byte) snet.Payload { return snet.SCMPDestinationUnreachable{Payload: q} },
		"echo request": func([]byte) snet.Payload {
			return snet.SCMPEchoRequest{Identifier: 1, SeqNumber: 2, Payload: []byte("x")}
		},
		"traceroute": func([]byte) snet.Payload { return snet.SCMPTracerouteReply{Identifier: 1, Sequence: 2, IA: otherIA} },
	} {
		for _, small := range []bool{false, true} {
			h, _, path := host(f)
			w := newSCMPCase(f, h, path, about)
			if small { // cut off by a router, with the path as it sees it
				w.requote(w.quote(f, w.us, w.peer, edited(f, path.way.raw, onTheWay))[:path.way.headerLen(us, peer)])
			}
			w.message.Path = snetpath.SCION{Raw: w.message.Path.(snet.RawPath).Raw}
			if err := w.message.Serialize(); err != nil {
				f.Fatal(err)
			}
			b := bytes.Clone(w.message.Bytes)
			if believable := name == "external" || name == "internal" || name == "too big"; take(f, bytes.Clone(b)) != believable {
				f.Errorf("%s: believed: %t", name, !believable)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) { take(t, b) })
}

// FuzzEcho answers echo requests, and handles answers to our own.
func FuzzEcho(f *testing.F) {
	us := Addr{usIA, netip.MustParseAddr("10.0.0.1"), 1000}
	peer := Addr{peerIA, netip.MustParseAddr("10.0.0.3"), 0}
	there := rawPath(f, false, segment{true, false, 1000, [][2]uint16{{0, 41}, {51, 61}, {81, 0}}})
	answered := func(t testing.TB, b []byte) (reply, alive bool) {
		h := &Host{ia: usIA}
		in := snet.Packet{Bytes: b}
		if err := in.Decode(); err != nil {
			return false, false
		}
		if _, request := in.Payload.(snet.SCMPEchoRequest); request {
			out, ok := h.echoReply(&in, us.Host)
			if !ok {
				return false, false
			}
			if p := (snet.Packet{Bytes: make(snet.Bytes, common.SupportedMTU), PacketInfo: out}); p.Serialize() != nil {
				return false, false
			} else if len(p.Bytes) > len(b)+8 || out.Destination != in.Source || out.Source.Host != addr.HostIP(us.Host) {
				t.Errorf("%d bytes from %s to %s for %d bytes from %s", len(p.Bytes), out.Source, out.Destination, len(b), in.Source)
			}
			return true, false
		}
		c := scmpClient{dst: peerIA, sent: []scmpRequest{{from: us, answered: true}, {from: us, path: 1}, {from: us, answered: true}}}
		a, ok := c.answer(in.Payload)
		if ok && a.path != 1 {
			t.Errorf("an answer to request %d, which is answered already", a.path)
		}
		return false, ok
	}
	add := func(m snet.Payload, path snet.DataplanePath, reply, answer bool) {
		p := snet.Packet{PacketInfo: snet.PacketInfo{
			Source:      snet.SCIONAddress{IA: addr.IA(peer.IA), Host: addr.HostIP(peer.Host)},
			Destination: snet.SCIONAddress{IA: addr.IA(us.IA), Host: addr.HostIP(us.Host)},
			Path:        path, Payload: m,
		}}
		if err := p.Serialize(); err != nil {
			f.Fatal(err)
		}
		if r, a := answered(f, bytes.Clone(p.Bytes)); r != reply || a != answer {
			f.Errorf("%T: replied %t, taken for an answer %t", m, r, a)
		}
		f.Add([]byte(p.Bytes))
	}
	sent := snet.Packet{PacketInfo: snet.PacketInfo{
		Source:      snet.SCIONAddress{IA: addr.IA(us.IA), Host: addr.HostIP(us.Host)},
		Destination: snet.SCIONAddress{IA: addr.IA(peer.IA), Host: addr.HostIP(peer.Host)},
		Path:        snetpath.SCION{Raw: there}, Payload: snet.SCMPEchoRequest{Identifier: us.Port, SeqNumber: 1},
	}}
	if err := sent.Serialize(); err != nil {
		f.Fatal(err)
	}
	quote := bytes.Clone(sent.Bytes)
	add(snet.SCMPEchoRequest{Identifier: 1, SeqNumber: 2, Payload: []byte("x")}, snetpath.Empty{}, true, false)
	add(snet.SCMPEchoRequest{Identifier: 1, SeqNumber: 2}, snetpath.SCION{Raw: oneTrail(f, 1000)}, true, false)
	add(snet.SCMPEchoReply{Identifier: us.Port, SeqNumber: 1}, snetpath.SCION{Raw: oneTrail(f, 1000)}, false, true)
	add(snet.SCMPTracerouteReply{Identifier: us.Port, Sequence: 1, IA: otherIA}, snetpath.Empty{}, false, true)
	add(snet.SCMPEchoReply{Identifier: us.Port, SeqNumber: 2}, snetpath.Empty{}, false, false)
	add(snet.SCMPDestinationUnreachable{Payload: quote}, snetpath.Empty{}, false, true)
	add(snet.SCMPExternalInterfaceDown{IA: otherIA, Interface: 61, Payload: quote}, snetpath.Empty{}, false, true)
	f.Fuzz(func(t *testing.T, b []byte) { answered(t, b) })
}

// TestTraceOfManyPaths traces more paths than there are requests, or than there is time for. A path
// must get all or none.
func TestTraceOfManyPaths(t *testing.T) {
	var cp controlPlane
	h, _, f := hostWithPath(t, &cp)
	h.localIP = netip.MustParseAddr("127.0.0.1")
	first, err := h.listenUDP(0) // the router, which answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if err := first.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	f.way.nextHop = first.LocalAddr().(*net.UDPAddr).AddrPort()
	cp.paths = nil
	var paths []pathsel.Path
	for i := range maxTraced/len(f.path.Interfaces) + 2 {
		f.path.Interfaces = slices.Clone(f.path.Interfaces)
		f.path.Interfaces[0].ID = uint64(1000 + i)
		f.trail = trailOf(f.path.Interfaces)
		cp.paths, paths = append(cp.paths, f), append(paths, f.path)
	}
	if _, err := h.Paths(t.Context(), peerIA); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
	defer cancel()
	go func() {
		for range maxTraced {
			_, _ = first.Read(make([]byte, 2048))
		}
		cancel()
	}()
	late, cancelLate := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancelLate()
	for ctx, most := range map[context.Context]int{ctx: maxTraced / len(f.path.Interfaces), late: 0} {
		traces, err := h.Trace(ctx, peerIA, paths)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range traces {
			if want := i >= most; r.Unknown != want {
				t.Errorf("at most %d: path %d: unknown %v, want %v", most, i, r.Unknown, want)
			}
		}
	}
}
