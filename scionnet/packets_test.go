package scionnet_test

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"braid/pathsel"
	"braid/scionnet"
	"braid/scionnet/conformance"
)

// pairOf is two endpoints of one host.
func pairOf(t *testing.T, ip netip.Addr, dialer, acceptor scionnet.ListenConfig, short bool) conformance.Pair {
	h := scionnet.OneASAt(t, ip)
	paths, err := h.Paths(t.Context(), h.IA())
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Pair{
		Dialer:   scionnet.ListenOn(t, h, dialer),
		Acceptor: scionnet.ListenOn(t, h, acceptor),
		Paths:    []pathsel.Path{paths[0]},
		Short:    short,
	}
}

// TestLargePackets sends much data and makes many connections, over both packet connections.
func TestLargePackets(t *testing.T) {
	for name, cfg := range map[string]scionnet.ListenConfig{"fast": {}, "plain": {PlainPackets: true}} {
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, func(t *testing.T) conformance.Pair {
				return pairOf(t, netip.MustParseAddr("127.0.0.1"), cfg, cfg, false)
			})
		})
	}
}

// TestPackets runs the suite over both packet connections, and from one to the other.
func TestPackets(t *testing.T) {
	fast, plain := scionnet.ListenConfig{}, scionnet.ListenConfig{PlainPackets: true}
	for _, tt := range []struct {
		name             string
		ip               netip.Addr
		dialer, acceptor scionnet.ListenConfig
	}{
		{"fast over IPv4", netip.MustParseAddr("127.0.0.1"), fast, fast},
		{"fast over IPv6", netip.IPv6Loopback(), fast, fast},
		{"fast without offloading", netip.MustParseAddr("127.0.0.1"), scionnet.NoOffload, scionnet.NoOffload},
		{"plain over IPv4", netip.MustParseAddr("127.0.0.1"), plain, plain},
		{"plain over IPv6", netip.IPv6Loopback(), plain, plain},
		{"plain to fast", netip.MustParseAddr("127.0.0.1"), plain, fast},
		{"fast to plain", netip.MustParseAddr("127.0.0.1"), fast, plain},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if c, err := net.ListenUDP("udp", &net.UDPAddr{IP: tt.ip.AsSlice()}); err != nil {
				t.Skipf("this machine has no %s: %v", tt.ip, err)
			} else {
				c.Close()
			}
			conformance.Run(t, func(t *testing.T) conformance.Pair { return pairOf(t, tt.ip, tt.dialer, tt.acceptor, true) })
		})
	}
}

// TestRoughWire runs tests over a wire that loses, doubles, delays, cuts off and damages packets:
// whole bundles, if both endpoints are fast and the path carries large packets.
func TestRoughWire(t *testing.T) {
	fast, plain := scionnet.ListenConfig{}, scionnet.ListenConfig{PlainPackets: true}
	for _, tt := range []struct {
		name             string
		dialer, acceptor scionnet.ListenConfig
		bundles          bool
	}{
		{"bundles", fast, fast, scionnet.HasBundles},
		{"bundles without offloading", scionnet.NoOffload, scionnet.NoOffload, scionnet.HasBundles},
		{"plain", plain, plain, false},
		{"plain to fast", plain, fast, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// Each wire needs a host of its own, since it takes the place of the shim dispatcher.
			ip := netip.AddrFrom4([4]byte{127, 78, byte(rand.N(256)), byte(1 + rand.N(254))})
			w := newRoughWire(t, ip, 50)
			port := uint16(20000) // below the ports that the system assigns
			start := func(t *testing.T) conformance.Pair {
				h := scionnet.OneASOf(t, ip, 8400, "1024-1024", func(c *scionnet.Config) { c.AnyPort = true })
				paths, err := h.Paths(t.Context(), h.IA())
				if err != nil {
					t.Fatal(err)
				}
				tt.dialer.Port, tt.acceptor.Port = port, port+1
				port += 2
				return conformance.Pair{
					Dialer: scionnet.ListenOn(t, h, tt.dialer), Acceptor: scionnet.ListenOn(t, h, tt.acceptor),
					Paths: paths[:1], Short: true,
				}
			}
			t.Run("Exchange", func(t *testing.T) { w.exchange(t, start(t), tt.bundles) })
			conformance.RunLossy(t, start)
		})
	}
}
