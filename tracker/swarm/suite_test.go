package swarm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"braid/pathsel"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// opener makes an empty store, which the test closes. pass lets that much time go by for the store.
type opener struct {
	open func(t *testing.T, l swarm.Limits) swarm.Store
	pass func(t *testing.T, d time.Duration)
}

const all = swarm.IPv4 | swarm.IPv6 | swarm.SCION

// testStore runs the suite that every implementation of swarm.Store passes. bubble runs each test
// of it.
func testStore(t *testing.T, bubble func(*testing.T, func(*testing.T)), o opener) {
	for _, tt := range []struct {
		name string
		test func(*testing.T, opener)
	}{
		{"life of a peer", testLife}, {"networks", testNetworks}, {"several addresses", testAddresses}, {"quotas", testQuotas},
		{"one subnet", testSubnet}, {"half for others", testShare}, {"one network", testNetwork}, {"full memory", testFull},
		{"crowding out", testCrowding}, {"expiry", testExpiry}, {"model", testModel}, {"concurrency", testConcurrency},
	} {
		t.Run(tt.name, func(t *testing.T) { bubble(t, func(t *testing.T) { tt.test(t, o) }) })
	}
}

type store struct {
	swarm.Store
	t *testing.T
}

func open(t *testing.T, o opener, l swarm.Limits) store {
	t.Helper()
	s := o.open(t, l)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return store{s, t}
}

func (s store) announce(v swarm.Visit) swarm.View {
	s.t.Helper()
	out, err := s.Announce(context.Background(), v)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s store) scrape(h wire.InfoHash) [4]int64 {
	s.t.Helper()
	c, err := s.Scrape(context.Background(), []wire.InfoHash{h})
	if err != nil || len(c) != 1 || c[0].InfoHash != h {
		s.t.Fatalf("scrape: %+v, %v", c, err)
	}
	return [4]int64{c[0].Complete, c[0].Incomplete, c[0].Downloaded, c[0].Downloaders}
}

func (s store) expect(h wire.InfoHash, complete, incomplete, downloaded, downloaders int64) {
	s.t.Helper()
	if got := s.scrape(h); got != [4]int64{complete, incomplete, downloaded, downloaders} {
		s.t.Errorf("complete, incomplete, downloaded, downloaders: %v, want %d %d %d %d", got, complete, incomplete, downloaded, downloaders)
	}
}

func (s store) members() swarm.Totals {
	s.t.Helper()
	n, err := s.Totals(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// visitOn is an announce of peer n, at a host of its own on the network.
func visitOn(n int, network swarm.Networks) swarm.Visit {
	v := swarm.Visit{InfoHash: wire.InfoHash{1}, Identity: uint64(n) + 1, Want: 50, Reaches: all}
	binary.BigEndian.PutUint32(v.ID[:], uint32(n))
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 10<<24|uint32(n+1))
	v.Addr = wire.Addr{Host: netip.AddrFrom4(b), Port: uint16(1 + n%60000)}
	switch network {
	case swarm.IPv6:
		v.Addr.Host = netip.AddrFrom16([16]byte{0xfd, 4: b[1], 5: b[2], 6: b[3], 15: 1})
	case swarm.SCION:
		v.Addr.IA = pathsel.IA(1<<48 | 0xff00_0000_0110)
	}
	return v
}

func with(v swarm.Visit, f func(*swarm.Visit)) swarm.Visit { f(&v); return v }

func asSeed(v *swarm.Visit)  { v.Seed = true }
func stopped(v *swarm.Visit) { v.Event = wire.Stopped }

func addrs(v swarm.View) []wire.Addr {
	var out []wire.Addr
	for _, p := range v.Peers {
		out = append(out, p.Addr)
	}
	return out
}

func testLife(t *testing.T, o opener) {
	s := open(t, o, swarm.Limits{})
	a, b := visitOn(1, swarm.IPv4), visitOn(2, swarm.IPv4)
	if v := s.announce(a); len(v.Peers) != 0 || v.Counts.Incomplete != 1 || v.Refused != nil {
		t.Errorf("the first peer sees %+v", v)
	}
	if v := s.announce(b); len(v.Peers) != 1 || v.Peers[0] != (wire.Peer{ID: a.ID, Addr: a.Addr}) {
		t.Errorf("the second peer sees %+v", v)
	}
	if v := s.announce(with(a, func(v *swarm.Visit) { v.Want = 0 })); len(v.Peers) != 0 {
		t.Errorf("who wants nobody is told of %v", v.Peers)
	}
	s.announce(with(a, func(v *swarm.Visit) { v.Event = wire.Paused }))
	s.expect(a.InfoHash, 0, 2, 0, 1)
	done := with(b, func(v *swarm.Visit) { v.Event, v.Seed = wire.Completed, true })
	if v := s.announce(done); len(v.Peers) != 0 {
		t.Errorf("a seed is told of a partial seed: %v", v.Peers)
	}
	s.announce(done)
	s.expect(a.InfoHash, 1, 1, 1, 0)
	// Other peers do not see each other; nobody is entered by a port of 0, nor taken out by a
	// stranger's goodbye.
	s.announce(with(visitOn(3, swarm.IPv4), func(v *swarm.Visit) { v.Addr.Port = 0 }))
	s.announce(with(with(a, stopped), func(v *swarm.Visit) { v.Identity++ }))
	s.announce(with(visitOn(4, swarm.IPv4), stopped))
	s.expect(a.InfoHash, 1, 1, 1, 0)
	if v := s.announce(with(visitOn(3, swarm.IPv4), func(v *swarm.Visit) { v.InfoHash[0], v.Addr.Port = 9, 0 })); len(v.Peers) != 0 {
		t.Errorf("peers of another torrent: %v", v.Peers)
	}
	if n := s.members(); n != (swarm.Totals{Swarms: 1, IPv4: 2, Seeds: 1, Members: 2}) {
		t.Errorf("%+v", n)
	}
	s.announce(with(a, stopped))
	s.announce(with(b, stopped))
	s.expect(a.InfoHash, 0, 0, 0, 0)
	if n := s.members(); n != (swarm.Totals{}) {
		t.Errorf("left over: %+v", n)
	}
}

func testNetworks(t *testing.T, o opener) {
	s := open(t, o, swarm.Limits{})
	kinds := []swarm.Networks{swarm.IPv4, swarm.IPv6, swarm.SCION}
	for i, k := range kinds {
		for n := range 40 {
			s.announce(visitOn(100*i+n, k))
		}
	}
	for _, reaches := range []swarm.Networks{0, swarm.IPv4, swarm.SCION, swarm.IPv4 | swarm.IPv6, all} {
		v := s.announce(with(visitOn(999, swarm.IPv4), func(v *swarm.Visit) { v.Reaches, v.Want, v.Addr.Port = reaches, 60, 0 }))
		var got [3]int
		for _, a := range addrs(v) {
			switch {
			case a.IsSCION():
				got[2]++
			case a.Host.Is6():
				got[1]++
			default:
				got[0]++
			}
		}
		want := map[swarm.Networks][3]int{
			0: {}, swarm.IPv4: {40, 0, 0}, swarm.SCION: {0, 0, 40}, swarm.IPv4 | swarm.IPv6: {30, 30, 0}, all: {20, 20, 20},
		}[reaches]
		if got != want {
			t.Errorf("reaching %b: %v peers, want %v", reaches, got, want)
		}
	}
	if n := s.members(); n.IPv4 != 40 || n.IPv6 != 40 || n.SCION != 40 {
		t.Errorf("%+v", n)
	}
}

// A peer with addresses on several networks is one peer, and is not introduced to itself.
func testAddresses(t *testing.T, o opener) {
	s := open(t, o, swarm.Limits{})
	one, two := visitOn(1, swarm.IPv4), visitOn(1, swarm.SCION)
	s.announce(one)
	if v := s.announce(two); len(v.Peers) != 0 {
		t.Errorf("introduced to itself: %v", v.Peers)
	}
	s.expect(one.InfoHash, 0, 1, 0, 1)
	s.announce(with(one, asSeed))
	s.expect(one.InfoHash, 1, 0, 0, 0)
	if v := s.announce(visitOn(2, swarm.IPv4)); len(v.Peers) != 2 {
		t.Errorf("another is told of %v", addrs(v))
	}
	s.announce(with(two, stopped))
	s.expect(one.InfoHash, 1, 1, 0, 1)
	s.announce(with(one, stopped))
	s.expect(one.InfoHash, 0, 1, 0, 1)
}

func testQuotas(t *testing.T, o opener) {
	s := open(t, o, swarm.Limits{PerHost: 3, PerAS: 5, Members: 30, PerNetwork: 30})
	for n := range 5 {
		v := s.announce(with(visitOn(0, swarm.IPv4), func(v *swarm.Visit) { v.Addr.Port, v.Identity = uint16(n+1), uint64(n)+50 }))
		if (v.Refused != nil) != (n >= 3) || n >= 3 && !errors.Is(v.Refused, swarm.ErrPerHost) {
			t.Errorf("port %d of a host: %v", n, v.Refused)
		}
	}
	for n := range 8 {
		v := s.announce(visitOn(n+10, swarm.SCION))
		if (v.Refused != nil) != (n >= 5) || n >= 5 && !errors.Is(v.Refused, swarm.ErrPerAS) {
			t.Errorf("host %d of an AS: %v", n, v.Refused)
		}
		if n >= 5 && len(v.Peers) == 0 {
			t.Error("who is not entered gets no answer")
		}
	}
	var refused int
	for n := range 30 {
		if v := s.announce(visitOn(n+100, swarm.IPv6)); errors.Is(v.Refused, swarm.ErrFull) {
			refused++
		}
	}
	if n := s.members(); n.Members != 30 || refused != 8 {
		t.Errorf("%+v, %d refused", n, refused)
	}
	// Room is used again.
	s.announce(with(visitOn(100, swarm.IPv6), stopped))
	if v := s.announce(visitOn(500, swarm.IPv4)); v.Refused != nil {
		t.Error(v.Refused)
	}
}

// A /64 of IPv6 counts as one host, since its owner can use any address in it. On SCION, each address
// is a host of its own.
func testSubnet(t *testing.T, o opener) {
	s := open(t, o, swarm.Limits{PerHost: 3})
	for _, n := range []int{5, 25} { // before and after there is an index
		refused := 0
		for i := range n {
			for _, network := range []swarm.Networks{swarm.IPv6, swarm.SCION} {
				v := s.announce(with(visitOn(0, swarm.IPv6), func(v *swarm.Visit) {
					host := v.Addr.Host.As16()
					host[8], host[15] = byte(i), byte(n)
					v.Addr.Host, v.Addr.IA, v.Identity = netip.AddrFrom16(host), visitOn(0, network).Addr.IA, uint64(100+i)
				}))
				if errors.Is(v.Refused, swarm.ErrPerHost) && network == swarm.IPv6 {
					refused++
				} else if v.Refused != nil {
					t.Errorf("host %d: %v", i, v.Refused)
				}
			}
		}
		if want := map[int]int{5: 2, 25: 25}[n]; refused != want {
			t.Errorf("%d of %d hosts of a /64 refused, want %d", refused, n, want)
		}
	}
	if v := s.announce(visitOn(1, swarm.IPv6)); v.Refused != nil {
		t.Error("another /64: ", v.Refused)
	}
}

// One AS, with any number of swarms, fills no more than half of the memory.
func testShare(t *testing.T, o opener) {
	s := open(t, o, swarm.Limits{Members: 40, PerNetwork: 40})
	at := func(n int) swarm.Visit {
		return with(visitOn(n, swarm.SCION), func(v *swarm.Visit) { v.InfoHash = wire.InfoHash{byte(n)} })
	}
	for n := range 30 {
		if v := s.announce(at(n)); (v.Refused != nil) != (n >= 20) || n >= 20 && !errors.Is(v.Refused, swarm.ErrASShare) {
			t.Errorf("peer %d: %v", n, v.Refused)
		}
	}
	if v := s.announce(at(3)); v.Refused != nil {
		t.Error("one that is there already: ", v.Refused)
	}
	if v := s.announce(with(at(50), func(v *swarm.Visit) { v.Addr.IA++ })); v.Refused != nil {
		t.Error("of another AS: ", v.Refused)
	}
	if v := s.announce(visitOn(51, swarm.IPv4)); v.Refused != nil {
		t.Error("on IP: ", v.Refused)
	}
	s.announce(with(at(4), stopped))
	if v := s.announce(at(60)); v.Refused != nil {
		t.Error("room is not used again: ", v.Refused)
	}
}

// lone is the announce of peer n alone in a swarm.
func lone(n int, k swarm.Networks) swarm.Visit {
	return with(visitOn(n, k), func(v *swarm.Visit) {
		binary.BigEndian.PutUint32(v.InfoHash[:], uint32(n)*2654435761)
		v.InfoHash[4] = byte(k)
	})
}

// One address joins any number of swarms, and has a sixteenth of the memory.
func testNetwork(t *testing.T, o opener) {
	for _, k := range []swarm.Networks{swarm.IPv4, swarm.IPv6, swarm.SCION} {
		s := open(t, o, swarm.Limits{Members: 160})
		at := func(n int) swarm.Visit {
			return with(lone(n, k), func(v *swarm.Visit) { v.Addr.Host = visitOn(0, k).Addr.Host })
		}
		for n := range 100 {
			if v := s.announce(at(n)); (v.Refused != nil) != (n >= 10) || n >= 10 && !errors.Is(v.Refused, swarm.ErrNetworkShare) {
				t.Errorf("swarm %d: %v", n, v.Refused)
			}
		}
		s.announce(with(at(7), stopped))
		if v := s.announce(at(50)); v.Refused != nil {
			t.Error("room is not used again: ", v.Refused)
		}
		other := visitOn(0x1000, k) // another /24, another /48
		other.Addr.Host = netip.AddrFrom4([4]byte{10, 1, 0, 1})
		if k == swarm.IPv6 {
			other.Addr.Host = netip.MustParseAddr("fd00:0:1::1")
		}
		if v := s.announce(other); v.Refused != nil {
			t.Error("of another network: ", v.Refused)
		}
	}
}

// A memory that one network has filled has places for the other kinds, and those who are alone in
// their swarms make room for others, but not for more of the network that is the largest.
func testFull(t *testing.T, o opener) {
	s := open(t, o, swarm.Limits{Members: 64, PerNetwork: 64, PerHost: 64})
	for n := range 100 {
		if v := s.announce(lone(n, swarm.IPv4)); (v.Refused != nil) != (n >= 56) || n >= 56 && !errors.Is(v.Refused, swarm.ErrFull) {
			t.Errorf("peer %d of a network: %v", n, v.Refused)
		}
	}
	var honest []swarm.Visit
	for n := range 6 {
		for _, k := range []swarm.Networks{swarm.IPv4, swarm.IPv6, swarm.SCION} {
			v := lone(0x10000*(n+1), k) // each in a network of its own
			v.Addr.IA += pathsel.IA(n) * v.Addr.IA >> 48
			if got := s.announce(v); got.Refused != nil {
				t.Errorf("honest peer %d on network %d: %v", n, k, got.Refused)
			}
			honest = append(honest, v)
		}
	}
	for n := range 100 {
		if v := s.announce(lone(100+n, swarm.IPv4)); !errors.Is(v.Refused, swarm.ErrFull) {
			t.Errorf("peer %d of the largest network: %v", n, v.Refused)
		}
	}
	for _, v := range honest {
		if s.scrape(v.InfoHash) != [4]int64{0, 1, 0, 1} {
			t.Errorf("%v is forgotten", v.Addr)
		}
	}
	if n := s.members(); n.Members > 64 || n.Members < 60 || n.IPv6 != 6 || n.SCION != 6 || n.Swarms != n.Members {
		t.Errorf("%+v", n)
	}
	// A swarm of two is not dead: its members go only for an owner who has fewer, and after those
	// who are alone.
	a, b := lone(300, swarm.IPv4), lone(300, swarm.SCION)
	a.Addr.Host = netip.MustParseAddr("10.200.0.1")
	b.Addr.IA, b.Identity, b.InfoHash = b.Addr.IA+77, 1, a.InfoHash
	s.announce(a)
	s.announce(b)
	for n := range 20 {
		s.announce(lone(0x10000*(n+50), swarm.IPv4))
	}
	if got := s.scrape(a.InfoHash); got[1] != 2 {
		t.Errorf("the swarm of two has %d", got[1])
	}
}

// 10 000 peers invented by one AS: honest ones of other ASes stay, and are found.
func testCrowding(t *testing.T, o opener) {
	s := open(t, o, swarm.Limits{PerAS: 200})
	const honest = 10
	for n := range honest {
		s.announce(with(visitOn(20_000+n, swarm.SCION), func(v *swarm.Visit) { v.Addr.IA += pathsel.IA(1 + n) }))
	}
	var crowd errgroup.Group // many at once, so that the test does not wait for a server 2000 times
	crowd.SetLimit(50)
	for n := range 2000 {
		crowd.Go(func() error {
			_, err := s.Announce(context.Background(), visitOn(n, swarm.SCION))
			return err
		})
	}
	if err := crowd.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := s.members(); n.SCION != honest+200 {
		t.Fatalf("%d members", n.SCION)
	}
	for range 20 {
		v := s.announce(with(visitOn(30_000, swarm.SCION), func(v *swarm.Visit) { v.Addr.IA, v.Want = v.Addr.IA+99, 20 }))
		found := 0
		for _, a := range addrs(v) {
			if a.IA != visitOn(0, swarm.SCION).Addr.IA {
				found++
			}
		}
		if len(v.Peers) != 20 || found != honest {
			t.Fatalf("%d peers, %d of them honest; want 20 with all %d", len(v.Peers), found, honest)
		}
	}
}

func testExpiry(t *testing.T, o opener) {
	s := open(t, o, swarm.Limits{Lifetime: 10 * time.Minute})
	for n := range 40 {
		s.announce(visitOn(n, swarm.IPv4))
	}
	s.announce(with(visitOn(0, swarm.IPv4), func(v *swarm.Visit) { v.InfoHash[0] = 7 }))
	o.pass(t, 6*time.Minute)
	for n := range 10 {
		s.announce(visitOn(n, swarm.IPv4))
	}
	o.pass(t, 6*time.Minute)
	if err := s.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.expect(wire.InfoHash{1}, 0, 10, 0, 10)
	if n := s.members(); n.Members != 10 || n.Swarms != 1 {
		t.Errorf("%+v", n)
	}
	o.pass(t, 11*time.Minute)
	if err := s.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := s.members(); n != (swarm.Totals{}) {
		t.Errorf("left over: %+v", n)
	}
}

// Random visits, against maps that remember everything.
func testModel(t *testing.T, o opener) {
	s := open(t, o, swarm.Limits{PerHost: 1 << 20, PerAS: 1 << 20})
	r := rand.New(rand.NewPCG(1, 2))
	type state struct {
		identity uint64
		seed     bool
		paused   bool
	}
	swarms := map[wire.InfoHash]map[wire.Addr]state{}
	for range 5_000 {
		v := visitOn(r.IntN(60), []swarm.Networks{swarm.IPv4, swarm.IPv6, swarm.SCION}[r.IntN(3)])
		v.InfoHash = wire.InfoHash{byte(r.IntN(3))}
		v.Seed, v.Event = r.IntN(3) == 0, []wire.Event{wire.Periodic, wire.Started, wire.Paused, wire.Stopped, wire.Stopped}[r.IntN(5)]
		if v.InfoHash[0] == 2 { // a small one
			v.Addr.Host, v.Identity = netip.MustParseAddr("10.9.9.9"), uint64(r.IntN(4))
			v.Addr.Port = uint16(1 + r.IntN(10))
		}
		m := swarms[v.InfoHash]
		if m == nil {
			m = map[wire.Addr]state{}
			swarms[v.InfoHash] = m
		}
		if v.Event == wire.Stopped {
			if m[v.Addr].identity == v.Identity {
				delete(m, v.Addr)
			}
		} else {
			m[v.Addr] = state{v.Identity, v.Seed, v.Event == wire.Paused && !v.Seed}
		}
		got := s.announce(v)
		peers := map[uint64][3]int{}
		candidates := 0
		for a, x := range m {
			n := peers[x.identity]
			switch {
			case x.seed:
				n[0]++
			case x.paused:
				n[2]++
			default:
				n[1]++
			}
			peers[x.identity] = n
			if x.identity != v.Identity && a != v.Addr && (!v.Seed || !x.seed && !x.paused) {
				candidates++
			}
		}
		var complete, incomplete, downloaders int64
		for _, n := range peers {
			switch {
			case n[0] > 0:
				complete++
			case n[1] > 0:
				incomplete++
				downloaders++
			default:
				incomplete++
			}
		}
		if c := got.Counts; c.Complete != complete || c.Incomplete != incomplete || c.Downloaders != downloaders {
			t.Fatalf("%+v: counts %+v, want %d, %d, %d", v, c, complete, incomplete, downloaders)
		}
		if v.Event == wire.Stopped {
			continue
		}
		seen := map[wire.Addr]bool{}
		for _, a := range addrs(got) {
			x, ok := m[a]
			if !ok || seen[a] || x.identity == v.Identity || v.Seed && (x.seed || x.paused) {
				t.Fatalf("%+v is told of %v (%+v)", v, a, x)
			}
			seen[a] = true
		}
		// Ones of its own or without use may have been drawn in place of others, never more than
		// are there.
		if len(seen) > min(v.Want, candidates) || candidates > 20 && len(seen) == 0 || v.Want >= 3*len(m) && len(seen) != candidates {
			t.Fatalf("%d peers of %d, %d wanted", len(seen), candidates, v.Want)
		}
	}
}

func testConcurrency(t *testing.T, o opener) {
	s := open(t, o, swarm.Limits{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for n := range 500 {
				v := visitOn(1000*w+n, []swarm.Networks{swarm.IPv4, swarm.IPv6, swarm.SCION}[n%3])
				v.InfoHash[0] = byte(n % 5)
				if _, err := s.Announce(context.Background(), v); err != nil {
					t.Error(err)
				}
				if n%2 == 0 {
					if _, err := s.Announce(context.Background(), with(v, stopped)); err != nil {
						t.Error(err)
					}
				}
				if n%100 == 0 {
					if err := s.Sweep(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := s.members(); n.Members != 1000 || n.Swarms != 5 {
		t.Errorf("%+v", n)
	}
	c, err := s.Scrape(context.Background(), []wire.InfoHash{{0}, {1}, {2}, {3}, {4}})
	if err != nil || !slices.ContainsFunc(c, func(c wire.Counts) bool { return c.Incomplete == 200 }) {
		t.Errorf("%+v, %v", c, err)
	}
}
