package scionnet

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"

	"braid/pathsel"
)

// along is a path through those interfaces.
func along(ifs ...pathsel.Interface) found {
	p := pathsel.Path{Src: ifs[0].IA, Dst: ifs[len(ifs)-1].IA, Interfaces: ifs, Expiry: time.Now().Add(time.Hour)}
	return found{path: p, trail: trailOf(ifs), way: &way{expiry: p.Expiry}}
}

func TestTrailLeads(t *testing.T) {
	at := func(ia pathsel.IA, id uint64) pathsel.Interface { return pathsel.Interface{IA: ia, ID: id} }
	// There are two links from 1 to 2 and two from 2 to 3. The control plane offers two of the
	// combinations.
	l := linksOf([]found{along(at(1, 11), at(2, 21), at(2, 23), at(3, 31)), along(at(1, 12), at(2, 22), at(2, 24), at(3, 32))})
	for _, tt := range []struct {
		name  string
		to    pathsel.IA
		trail trail
		want  bool
	}{
		{"as offered", 3, trailFrom(11, 21, 23, 31), true},
		{"the same links combined in another way", 3, trailFrom(11, 21, 24, 32), true},
		{"ends earlier", 3, trailFrom(11, 21), false},
		{"to an AS on the way", 2, trailFrom(11, 21, 23, 31), false},
		{"a link that nobody knows", 3, trailFrom(11, 21, 25, 31), false},
		{"a link that ends elsewhere", 3, trailFrom(11, 22, 23, 31), false},
		{"goes on", 3, trailFrom(11, 21, 23, 31, 33, 41), false},
		{"half a link", 3, trailFrom(11, 21, 23), false},
		{"none", 3, "", false},
	} {
		if got := l.leadTo(1, tt.to, tt.trail); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

// oneTrail is a path to usIA from peerIA, as in a received packet.
func oneTrail(t testing.TB, start uint32) []byte {
	return rawPath(t, true, segment{true, false, start, [][2]uint16{{0, 81}, {61, 51}, {41, 0}}})
}

// A peer comes back long after its last connection. Its AS is still proven, but the paths to it have
// been forgotten.
func TestPathOfPeerThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c controlPlane
		h, _, f := hostWithPath(t, &c)
		for range 2 {
			r := h.routes.mustArrive(t, Addr{peerIA, netip.MustParseAddr("10.0.0.3"), 2000}, oneTrail(t, 1000), router)
			g, err := h.newInbound(t.Context(), r.pseudo)
			if err != nil {
				t.Fatal(err)
			}
			accepted := &Conn{endpoint: &Endpoint{host: h}, route: g.as.route, place: g}
			_ = accepted.Path() // starts a lookup
			synctest.Wait()
			if got := accepted.Path(); !slices.Equal(got.Interfaces, f.path.Interfaces) {
				t.Errorf("path %+v, want %+v", got, f.path)
			}
			later := &way{expiry: time.Now().Add(24 * time.Hour)}
			if h.routes.learn(peerIA, []found{{trail: f.trail, way: later}}); accepted.Path().Expiry != later.expiry {
				t.Errorf("the path expires at %v after new hop fields", accepted.Path().Expiry)
			}
			h.routes.unpin(g.as.route)
			time.Sleep(2 * forgetAfter)
		}
	})
}

// A hundred ASes are claimed over one raw path. One of the claims is true.
func TestClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c controlPlane
		h, _, f := hostWithPath(t, &c)
		met := map[pathsel.IA]remoteAS{}
		for i := range 100 {
			src := Addr{peerIA + pathsel.IA(i), netip.MustParseAddr("10.0.0.3"), 2000}
			met[src.IA] = h.remoteAS(h.routes.mustArrive(t, src, oneTrail(t, 1000), router))
		}
		// Each poll has another AS first, since only the first one is asked about.
		order, turn := slices.Sorted(maps.Keys(met)), 0
		poll := func() (proven []pathsel.IA) {
			turn++
			for i := range order {
				ia := order[(turn+i)%len(order)]
				if s := met[ia]; s.prove(t.Context(), 0) {
					proven = append(proven, ia)
				}
			}
			return proven
		}
		if got := poll(); len(got) != 0 {
			t.Fatalf("%v proven before anybody was asked", got)
		}
		honest := met[peerIA]
		for range 10 * 60 {
			poll()
			time.Sleep(time.Second)
		}
		if got := poll(); len(got) != 1 || got[0] != peerIA {
			t.Errorf("proven: %x, want %x", got, peerIA)
		}
		// There is at most one question for each poll, plus the refreshes of the proven AS.
		if n := c.asks(); n > 10*60+60 {
			t.Errorf("the control plane was asked %d times in ten minutes", n)
		}
		if n := len(h.lookup.destinations); n != 1 {
			t.Errorf("%d ASes are looked after", n)
		}
		if f, ok := h.lookup.find(peerIA, f.trail); !ok || f.path.Dst != peerIA {
			t.Error("the path to the AS that was proven is not known")
		}
		// The peer's next connection needs no question.
		if s := h.remoteAS(h.routes.mustArrive(t, Addr{peerIA, honest.route.remote.Host, 2001}, oneTrail(t, 1000), router)); !s.route.proven.Load() {
			t.Error("the second connection from a proven AS is not proven")
		}
	})
}

func TestClaimIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controlPlane{delay: 100 * time.Millisecond}
		h, _, _ := hostWithPath(t, &c)
		meet := func(ia pathsel.IA, port uint16) remoteAS {
			return h.remoteAS(h.routes.mustArrive(t, Addr{ia, netip.MustParseAddr("10.0.0.3"), port}, oneTrail(t, 1000), router))
		}
		start := time.Now()
		var all sync.WaitGroup
		for i := range maxWaitingTrail {
			all.Go(func() {
				if !meet(peerIA, uint16(i+1)).prove(t.Context(), time.Second) {
					t.Error("not proven after the answer")
				}
			})
		}
		all.Wait()
		if d := time.Since(start); d != c.delay {
			t.Errorf("waited %v, want %v", d, c.delay)
		}
		// A liar waits for one answer. After that nobody waits until the question may be repeated.
		h.routes.learn(peerIA, nil)
		liar := meet(peerIA+5, 1)
		if liar.prove(t.Context(), 10*time.Second) {
			t.Error("a lie is proven")
		}
		if start = time.Now(); liar.prove(t.Context(), 10*time.Second) || time.Since(start) != 0 {
			t.Errorf("waited %v for an answer that has come", time.Since(start))
		}
		// Nobody waits longer than requested.
		time.Sleep(claimMost)
		c.mu.Lock()
		c.delay = time.Minute
		c.mu.Unlock()
		if start = time.Now(); liar.prove(t.Context(), 2*time.Second) || time.Since(start) != 2*time.Second {
			t.Errorf("waited %v, want 2s", time.Since(start))
		}
		time.Sleep(lookupTimeout)
	})
}

func TestClaimsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controlPlane{delay: time.Second}
		h, _, _ := hostWithPath(t, &c)
		for i := range 3 * maxClaims {
			raw := rawPath(t, true, segment{true, false, 1000, [][2]uint16{{0, 81}, {uint16(i + 1), 51}, {41, 0}}})
			src := Addr{pathsel.IA(9<<48 | i), netip.MustParseAddr("10.0.0.3"), 2000}
			h.remoteAS(h.routes.mustArrive(t, src, raw, router)).prove(t.Context(), 0)
		}
		synctest.Wait()
		h.claims.mu.Lock()
		if n := c.asks(); n > claimLookups || len(h.claims.byKey) > maxClaims || len(h.claims.trails) > maxClaims {
			t.Errorf("%d questions at once, %d claims", n, len(h.claims.byKey))
		}
		h.claims.mu.Unlock()
		time.Sleep(time.Hour) // for the answers
	})
}

// A host that closes does not wait for the answers of a control plane that is gone.
func TestClaimsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controlPlane{delay: time.Hour}
		h, _, _ := hostWithPath(t, &c)
		for i := range maxClaims {
			raw := rawPath(t, true, segment{true, false, 1000, [][2]uint16{{0, 81}, {uint16(i + 1), 51}, {41, 0}}})
			src := Addr{pathsel.IA(9<<48 | i), netip.MustParseAddr("10.0.0.3"), 2000}
			h.remoteAS(h.routes.mustArrive(t, src, raw, router)).prove(t.Context(), 0)
		}
		began := time.Now()
		h.lookup.close()
		if took := time.Since(began); took > 0 {
			t.Errorf("closed after %v", took)
		}
	})
}

// Inside the AS, the handshake reached the claimed address itself. A neighbour that sends directly
// to us is neither in another AS nor behind an interface that our AS does not have.
func TestNeighboursClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c controlPlane
		h, _, _ := hostWithPath(t, &c)
		host := netip.MustParseAddr("10.0.0.3")
		neighbour := netip.AddrPortFrom(host, 2000)
		h.routes.nextHop = func(id uint16) (netip.AddrPort, bool) { return router, id != 41 }
		for _, tt := range []struct {
			name string
			ia   pathsel.IA
			raw  []byte
			want bool
		}{
			{"of our AS", usIA, nil, true},
			{"of another AS, without a path", peerIA, nil, false},
			{"over an interface that we do not have", peerIA, oneTrail(t, 1000), false},
		} {
			s := h.remoteAS(h.routes.mustArrive(t, Addr{tt.ia, host, 2000}, tt.raw, neighbour))
			for range 3 {
				if got := s.prove(t.Context(), time.Second); got != tt.want {
					t.Errorf("%s: proven %t, want %t", tt.name, got, tt.want)
				}
			}
		}
		if n := c.asks(); n != 0 {
			t.Errorf("%d questions", n)
		}
	})
}

// Answers to a neighbour go to the address from which it has sent, whatever it claims.
func TestNeighbourIsWhereItSends(t *testing.T) {
	var cp controlPlane
	h, _, _ := hostWithPath(t, &cp)
	us := Addr{usIA, h.localIP, 1000}
	other := netip.MustParseAddr("10.0.0.3")
	from := netip.MustParseAddrPort("10.0.0.66:7")
	noLink := rawPath(t, true, segment{true, false, 1000, [][2]uint16{{0, 0}}})
	for _, tt := range []struct {
		name string
		ia   pathsel.IA
		path snet.DataplanePath
		want Addr // zero: the packet is dropped
	}{
		{"of our AS", usIA, snetpath.Empty{}, Addr{usIA, from.Addr(), from.Port()}},
		{"of another AS", peerIA, snetpath.Empty{}, Addr{}},
		{"over a path without a link", usIA, snetpath.SCION{Raw: noLink}, Addr{}},
	} {
		p := snet.Packet{Bytes: packet(t, Addr{tt.ia, other, 2000}, us, tt.path, []byte("x"))}
		if err := p.Decode(); err != nil {
			t.Fatal(err)
		}
		var got Addr
		if _, r, _ := h.parsePacket(&p, us, from, nil); r != nil {
			got = r.remote
		}
		if got != tt.want {
			t.Errorf("%s: the packet is from %s, want %s", tt.name, got, tt.want)
		}
	}
}
