package scionnet

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"braid/pathsel"
)

var router = netip.MustParseAddrPort("127.0.0.9:30001")

// testRoutes is a table of a host in an AS with one router, which has all interfaces.
func testRoutes() *routes {
	return newRoutes(1<<48|1, netip.MustParseAddr("10.0.0.1"),
		func(uint16) (netip.AddrPort, bool) { return router, true },
		func(port uint16) uint16 { return port })
}

func (t *routes) mustArrive(tb testing.TB, src Addr, raw []byte, from netip.AddrPort) *route {
	tb.Helper()
	r, _, err := t.replyRoute(src, raw, from, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func TestRouteOfADiallerIsThatOfTheAnswer(t *testing.T) {
	rs := testRoutes()
	peer := mustAddr(t, "1-2,[10.0.0.2]:1000")
	out := rawPath(t, false, up, core)
	h, err := readHops(out)
	if err != nil {
		t.Fatal(err)
	}
	dialled := rs.dial(peer, h.trail, &way{raw: out, nextHop: router, expiry: h.expiry})

	back, _, err := reverseHops(rawPath(t, true, up, core)) // the peer's path to us
	if err != nil {
		t.Fatal(err)
	}
	if err := standAtEnd(back); err != nil {
		t.Fatal(err)
	}
	if r := rs.mustArrive(t, peer, back, router); r != dialled {
		t.Errorf("the answer comes over another route: %x and %x", r.trail, dialled.trail)
	}
	if rs.forAddr(dialled.pseudo) != dialled {
		t.Error("the pseudo address does not lead to its route")
	}
}

// standAtEnd moves the packet to the end of the path, where it arrives.
func standAtEnd(raw []byte) error {
	d, err := decodePath(raw)
	if err != nil {
		return err
	}
	d.PathMeta.CurrHF, d.PathMeta.CurrINF = uint8(d.NumHops-1), uint8(d.NumINF-1)
	return d.SerializeTo(raw)
}

func TestRoutesAreTold(t *testing.T) {
	rs := testRoutes()
	a, b := mustAddr(t, "1-2,[10.0.0.2]:1000"), mustAddr(t, "1-2,[10.0.0.2]:1001")
	seen := map[string]string{}
	for _, src := range []Addr{a, b} {
		for name, raw := range map[string][]byte{
			"inside": nil, "core": rawPath(t, true, core), "up": rawPath(t, true, up), "both": rawPath(t, true, up, core),
		} {
			p := rs.mustArrive(t, src, raw, router).pseudo.String()
			if other, ok := seen[p]; ok {
				t.Errorf("%s over %s has the pseudo address of %s", src, name, other)
			}
			seen[p] = fmt.Sprint(src, " over ", name)
		}
	}
}

func TestHopFieldsAreRenewed(t *testing.T) {
	at := func(start uint32) segment { return segment{true, false, start, core.hops} }
	stranger := netip.MustParseAddrPort("127.0.0.66:6666")
	shim := netip.MustParseAddrPort("10.0.0.1:30041")
	for _, tt := range []struct {
		name  string
		start uint32
		from  netip.AddrPort
		taken bool
	}{
		{"newer", 2000, router, true},
		{"newer, by a shim", 2000, shim, true},
		{"older", 500, router, false},
		{"newer, but not from a router", 2000, stranger, false},
	} {
		rs := testRoutes()
		peer := mustAddr(t, "1-2,[10.0.0.2]:1000")
		r := rs.mustArrive(t, peer, rawPath(t, true, at(1000)), router)
		before := r.way.Load()
		if got := rs.mustArrive(t, peer, rawPath(t, true, at(tt.start)), tt.from); got != r {
			t.Errorf("%s: another route", tt.name)
		}
		if taken := r.way.Load() != before; taken != tt.taken {
			t.Errorf("%s: taken is %t, want %t", tt.name, taken, tt.taken)
		}
	}
}

func TestRenew(t *testing.T) {
	rs := testRoutes()
	now := time.Now()
	tr, other := trailFrom(1, 2), trailFrom(3, 4)
	old := &way{raw: []byte{1}, expiry: now}
	a := rs.dial(mustAddr(t, "1-2,[10.0.0.2]:1000"), tr, old)
	b := rs.dial(mustAddr(t, "1-3,[10.0.0.2]:1000"), tr, old)
	c := rs.dial(mustAddr(t, "1-2,[10.0.0.2]:1000"), other, old)
	later := &way{raw: []byte{2}, expiry: now.Add(time.Hour)}
	rs.learn(a.remote.IA, []found{{trail: tr, way: later}})
	if a.way.Load() != later || b.way.Load() != old || c.way.Load() != old {
		t.Error("renewed other routes than the one that it is about")
	}
	rs.learn(a.remote.IA, []found{{trail: tr, way: old}})
	if a.way.Load() != later {
		t.Error("went back to hop fields that end earlier")
	}
}

// TestRoutesAreBounded sends from invented addresses, and over one path with ever new hop fields.
func TestRoutesAreBounded(t *testing.T) {
	rs := testRoutes()
	friend := rs.mustArrive(t, mustAddr(t, "1-2,[10.0.0.2]:1000"), rawPath(t, true, up), router)
	if rs.pin(friend) != friend {
		t.Fatal("pinned another route")
	}
	for i := range 3 * maxIdle {
		src := Addr{pathsel.IA(1<<48 | uint64(i%7+1)), netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), uint16(i)}
		rs.mustArrive(t, src, nil, router)
	}
	if len(rs.byKey) > maxIdle+1 || len(rs.byPseudo) > maxIdle+1 || len(rs.byReplyKey) > maxIdle+1 {
		t.Errorf("%d routes, %d pseudo addresses, %d reply keys for %d senders", len(rs.byKey), len(rs.byPseudo), len(rs.byReplyKey), 3*maxIdle)
	}
	if rs.forAddr(friend.pseudo) != friend {
		t.Error("other senders have pushed out a route that is in use")
	}

	for i := range uint32(1000) {
		rs.mustArrive(t, friend.remote, rawPath(t, true, segment{up.consDir, up.peer, up.start + i, up.hops}), router)
	}
	if n := len(friend.replyKeys); n > maxReplyKeys {
		t.Errorf("one route remembers %d raw paths", n)
	}
	rs.unpin(friend)
	for i := range maxIdle {
		rs.mustArrive(t, Addr{9, netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), 1}, nil, router)
	}
	if rs.forAddr(friend.pseudo) != nil {
		t.Error("a route that nobody uses any more is kept")
	}
	if len(rs.byReplyKey) > maxIdle {
		t.Errorf("%d arrivals are left of %d routes", len(rs.byReplyKey), len(rs.byKey))
	}

	// A route that was dropped and comes back is the same remote to QUIC.
	if again := rs.mustArrive(t, friend.remote, rawPath(t, true, up), router); again.pseudo.String() != friend.pseudo.String() {
		t.Error("a route that comes back has another pseudo address")
	} else if rs.pin(friend) != again {
		t.Error("pinned a route that has been replaced")
	}
}

// A neighbour sends first, with invented hop fields that never expire. Then come the peer's
// packets, and the control plane's answer.
func TestTheControlPlaneWins(t *testing.T) {
	at := func(start uint32) segment {
		return segment{true, false, start, [][2]uint16{{0, 81}, {61, 51}, {41, 0}}}
	}
	now := uint32(time.Now().Unix())
	stranger := netip.MustParseAddrPort("10.0.0.66:6666")
	peer := Addr{peerIA, netip.MustParseAddr("10.0.0.3"), 2000}
	for _, from := range []netip.AddrPort{stranger, netip.AddrPortFrom(stranger.Addr(), shimPort), router} {
		rs := testRoutes()
		r := rs.mustArrive(t, peer, rawPath(t, true, at(now+1<<20)), from)
		invented := r.way.Load()
		real := rawPath(t, true, at(now))
		rs.mustArrive(t, peer, real, router)
		if from != router && r.way.Load() == invented {
			t.Errorf("from %s: the peer's own packet does not count against a neighbour's", from)
		}
		offer := &way{raw: []byte{1}, nextHop: router, expiry: time.Now().Add(time.Hour)}
		for name, give := range map[string]func(){
			"renewal":  func() { rs.learn(peerIA, []found{{trail: r.trail, way: offer}}) },
			"dialling": func() { rs.unpin(rs.dial(peer, r.trail, offer)) },
		} {
			r.way.Store(invented)
			if give(); r.way.Load() != offer {
				t.Errorf("from %s: %s leaves the invented hop fields", from, name)
			}
			for i := range uint32(3) {
				rs.mustArrive(t, peer, rawPath(t, true, at(now+2<<20+i)), from)
			}
			if r.way.Load() != offer {
				t.Errorf("from %s, after %s: invented hop fields replace the control plane's", from, name)
			}
		}
		// If the control plane is silent until its hop fields expire, the peer's are used.
		r.way.Store(&way{raw: []byte{1}, nextHop: router, expiry: time.Now().Add(-time.Second)})
		for _, by := range []netip.AddrPort{stranger, router} {
			rs.mustArrive(t, peer, rawPath(t, true, at(now+3<<20)), by)
			if taken := r.way.Load().expiry.After(time.Now()); taken != (by == router) {
				t.Errorf("after the end of the control plane's hop fields: a packet's by %s taken: %t", by, taken)
			}
		}
	}
}

// The peer's last new hop fields arrive before the control plane's expire.
func TestThePeersHopFieldsOutlast(t *testing.T) {
	raw := rawPath(t, true, segment{true, false, uint32(time.Now().Unix()), [][2]uint16{{0, 81}, {61, 51}, {41, 0}}})
	peer := Addr{peerIA, netip.MustParseAddr("10.0.0.3"), 2000}
	for _, by := range []netip.AddrPort{netip.MustParseAddrPort("10.0.0.66:6666"), router} {
		var cp controlPlane
		h, _, _ := hostWithPath(t, &cp)
		rs := h.routes
		back, hops, err := reverseHops(raw)
		if err != nil {
			t.Fatal(err)
		}
		offer := &way{raw: back, nextHop: router, expiry: time.Now().Add(time.Minute)}
		r := rs.dial(peer, hops.trail, offer)
		rs.mustArrive(t, peer, raw, by)
		if rs.renew(r, time.Now()); r.way.Load() != offer {
			t.Errorf("by %s: they replace the control plane's", by)
		}
		rs.mustArrive(t, peer, raw, by)
		if rs.renew(r, offer.expiry); r.way.Load() == offer != (by != router) {
			t.Errorf("by %s: used after the end of the control plane's: %t", by, r.way.Load() != offer)
		}
		ended := &way{raw: back, nextHop: router, expiry: time.Now().Add(-time.Second)}
		r.way.Store(ended)
		if _, err := h.newInbound(t.Context(), r.pseudo); err != nil || r.way.Load() == ended != (by != router) {
			t.Errorf("by %s: used for a new connection: %t, %v", by, r.way.Load() != ended, err)
		}
	}
}
