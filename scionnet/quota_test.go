package scionnet

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"braid/pathsel"
	"braid/scionnet/quic"
)

func hostNumber(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }

// An owner of many hosts, or of a large AS, gets no more places than one host and one AS may have.
func TestShares(t *testing.T) {
	q := quota{limits: limits{total: 1000, perNet: 500, perHost: 60, unproven: 100}}
	var last *inbound
	tries := func(ia pathsel.IA, hosts, each int) (in int) {
		for n := range hosts {
			for range each {
				if g := newInbound(t.Context(), pathsel.OriginSCION(ia, hostNumber(n), ""), remoteAS{}); q.take(g, false) {
					last = g
					in++
				}
			}
		}
		return in
	}
	if n := tries(1, 1, 1000); n != 60 {
		t.Errorf("one host has %d connections", n)
	}
	if n := tries(1, 1000, 1); n != 500-60 {
		t.Errorf("one AS has %d more connections", n)
	}
	if n := tries(2, 1, 1); n != 1 {
		t.Error("another AS is kept out")
	}
	if tries(1, 1000, 1) != 0 {
		t.Error("an AS has more than its part")
	}
	q.release(last)
	if n := tries(2, 1, 1); n != 1 {
		t.Errorf("%d connections after one has ended", n)
	}
	if n := tries(3, 1000, 1); n != 1000-500-1 {
		t.Errorf("%d connections are left", n)
	}
	if tries(0, 1000, 1) != 0 {
		t.Error("more than all")
	}
}

// The owner of a network on IP cannot keep others out, however many hosts it has.
func TestNetworksShareOnIP(t *testing.T) {
	e, err := ListenIP(IPConfig{Listen: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer e.Close()
	defer end()
	admits := func(host netip.Addr) bool {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(host, 1))
		_, err := e.admitIP(ctx, &quic.ClientInfo{RemoteAddr: from, AddrVerified: true})
		return err == nil
	}
	for n := range connLimits.total {
		admits(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 6: byte(n), 15: 1}))
	}
	if !admits(netip.MustParseAddr("192.0.2.1")) {
		t.Error("the owner of an IPv6 network keeps others out")
	}
}

// unprovenPeers makes connections from claimed ASes, along trails that a number identifies.
type unprovenPeers struct {
	t testing.TB
	h *Host
}

func (s unprovenPeers) inbound(ia pathsel.IA, n int, along uint16) *inbound {
	raw := rawPath(s.t, true, segment{true, false, 1000, [][2]uint16{{0, 81}, {along, 51}, {41, 0}}})
	r := s.h.routes.mustArrive(s.t, Addr{ia, hostNumber(n), 2000}, raw, router)
	return newInbound(s.t.Context(), pathsel.OriginSCION(ia, r.remote.Host, ""), s.h.remoteAS(r))
}

// Packets of liars and of honest peers come along these interfaces.
const lie, truth = 71, 61

func quotaForLiars(t *testing.T) (unprovenPeers, *quota) {
	h, _, _ := hostWithPath(t, &controlPlane{})
	return unprovenPeers{t, h}, &quota{limits: limits{total: 100, perNet: 50, perHost: 50, unproven: 10}}
}

// A liar claims to be in the AS of honest peers. That does not use up their share, and does not
// keep newcomers out.
func TestLiarsShareOnePart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := quotaForLiars(t)
		inAS := pathsel.IA(peerIA).String()
		var liars []*inbound
		for n := range 200 {
			if g := s.inbound(peerIA, n, lie); q.take(g, true) {
				liars = append(liars, g)
			}
		}
		if len(liars) != 10 || len(q.of) != 0 {
			t.Fatalf("%d liars have a place, and %d origins bear the blame", len(liars), len(q.of))
		}
		spoofed := s.inbound(peerIA, 1, truth)
		if q.take(spoofed, false) {
			t.Error("an address that nobody has shown to receive at takes another's place")
		}
		if !q.unprovenFull() {
			t.Error("nobody has to show where he receives")
		}
		honest := s.inbound(peerIA, 1, truth)
		if !q.take(honest, true) {
			t.Fatal("a newcomer along other links has no place beside ten liars")
		}
		if liars[0].ctx.Err() == nil || honest.ctx.Err() != nil || liars[1].ctx.Err() != nil {
			t.Error("the newcomer has not taken the oldest liar's place")
		}
		if !honest.as.prove(t.Context(), time.Second) {
			t.Fatal("the honest peer is not proven")
		}
		for n := range 49 {
			if !q.take(s.inbound(peerIA, 2+n, truth), false) {
				t.Fatalf("peer %d of an AS that liars claim is kept out", 2+n)
			}
		}
		if q.take(s.inbound(peerIA, 999, truth), true) {
			t.Error("an AS has more than its part")
		}
		if q.of[inAS] != 50 || len(q.unproven) != 9 {
			t.Errorf("%d connections in the AS's name and %d unproven ones, want 50 and 9", q.of[inAS], len(q.unproven))
		}
		// A connection whose claim was refuted is evicted before any other.
		q.take(s.inbound(peerIA+1, 1, lie+1), true)
		liars[5].as.prove(t.Context(), time.Second)
		if !q.take(s.inbound(peerIA+1, 2, lie+1), true) || !q.take(s.inbound(peerIA+1, 3, lie+1), true) || liars[1].ctx.Err() == nil {
			t.Error("a claim that was refuted keeps its place")
		}
		if q.take(s.inbound(peerIA, 5, lie), true) {
			t.Error("a claim that was refuted takes another's place")
		}
		for _, g := range liars {
			q.release(g)
		}
		q.release(honest)
		if q.of[inAS] != 49 || len(q.unproven) != 3 || q.held != 52 {
			t.Errorf("%d in the AS's name, %d unproven, %d in all; want 49, 3, 52", q.of[inAS], len(q.unproven), q.held)
		}
	})
}

// A liar evicts his own handshakes, which go on until they time out, by one false claim after the
// other. That does not keep out a host whose AS is proven.
func TestLiarsReplaceThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := quotaForLiars(t)
		for n := range 20 {
			var last *inbound
			for range 10 {
				if g := s.inbound(peerIA+1+pathsel.IA(n), 1, lie); q.take(g, true) {
					last = g
				}
			}
			if last != nil && last.as.prove(t.Context(), time.Second) {
				t.Fatal("a lie is proven")
			}
			time.Sleep(trailPause)
		}
		honest := s.inbound(peerIA, 1, truth)
		if !honest.as.prove(t.Context(), time.Second) || !q.take(honest, true) {
			t.Errorf("no place beside %d connections of one liar", q.held)
		}
	})
}

// An endpoint closes an evicted connection.
func TestEvictedConnectionEnds(t *testing.T) {
	h := oneAS(t)
	a, b := listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{})
	d, c := pair(t, a, b)
	c.place.evict()
	if _, err := d.Read(make([]byte, 1)); err == nil {
		t.Error("the dialler does not hear of it")
	}
	<-c.quic.Context().Done()
}
